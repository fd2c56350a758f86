package routelocalnet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestKeep has planes need the setting one after the other, as in a change of
// mode, in a network namespace of its own.
func TestKeep(t *testing.T) {
	for _, test := range []struct {
		name, before string
		// steps are "+a" for plane a needing it and "-a" for not; each with what
		// the setting is then.
		steps [][2]string
	}{
		{"one plane", "0", [][2]string{{"+a", "1"}, {"-a", "0"}, {"-a", "0"}, {"+a", "1"}}},
		{"one after the other", "0", [][2]string{{"+a", "1"}, {"+b", "1"}, {"-a", "1"}, {"-b", "0"}}},
		{"the other never began", "0", [][2]string{{"+a", "1"}, {"-b", "1"}, {"-a", "0"}}},
		{"somebody else's", "1", [][2]string{{"+a", "1"}, {"-a", "1"}}},
		{"changed by somebody", "0", [][2]string{{"+a", "1"}, {"0", "0"}, {"+a", "1"}, {"-a", "0"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := netnstest.New(t)
			dir := t.TempDir()
			err := ns.Do(func() error {
				write(t, test.before)
				for i, step := range test.steps {
					switch step[0][0] {
					case '0':
						write(t, "0")
					default: // each time as another process
						if err := routelocalnet.New(dir, step[0][1:]).Keep(step[0][0] == '+', true); err != nil {
							return err
						}
					}
					if got := read(t); got != step[1] {
						t.Errorf("step %d, %s: it is %s, want %s", i, step[0], got, step[1])
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKeepSaysWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/route_localnet.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := routelocalnet.New(dir, "a").Keep(true, false)
	if err == nil || !strings.Contains(err.Error(), "route_localnet.json") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func write(t *testing.T, value string) {
	t.Helper()
	if err := os.WriteFile(routelocalnet.Path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T) string {
	t.Helper()
	value, err := os.ReadFile(routelocalnet.Path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}
