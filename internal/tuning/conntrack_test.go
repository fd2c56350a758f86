package tuning

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var settings = []string{
	"proc/sys/net/netfilter/nf_conntrack_max", "sys/module/nf_conntrack/parameters/hashsize",
	"proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established", "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait",
	"proc/sys/net/netfilter/nf_conntrack_udp_timeout", "proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream",
	"proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal",
}

// tree is a /proc and /sys in which every setting has this value.
func tree(t *testing.T, value string) root {
	t.Helper()
	dir := t.TempDir()
	for _, s := range settings {
		file := filepath.Join(dir, s)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root(dir)
}

func (r root) values(t *testing.T) string {
	t.Helper()
	var list []string
	for _, s := range settings {
		data, err := os.ReadFile(filepath.Join(string(r), s))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(string(data)))
	}
	return strings.Join(list, " ")
}

func TestApply(t *testing.T) {
	all := Conntrack{Max: 4000, TCPEstablished: time.Hour, TCPCloseWait: time.Minute, UDP: 20 * time.Second, UDPStream: 50 * time.Second, TCPBeLiberal: true}
	for _, test := range []struct {
		name, before, after string
		c                   Conntrack
	}{
		{"nothing asked for", "7", "7 7 7 7 7 7 7", Conntrack{}},
		{"all asked for", "7", "4000 1000 3600 60 20 50 1", all},
		{"sizes are only raised", "8000", "8000 8000 3600 60 20 50 1", all},
		{"less than a second is nothing", "7", "7 7 7 7 7 7 7", Conntrack{UDP: time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := tree(t, test.before)
			if err := test.c.apply(r); err != nil {
				t.Fatal(err)
			}
			if got := r.values(t); got != test.after {
				t.Errorf("got %s, want %s", got, test.after)
			}
		})
	}
}

func TestApplyDoesTheRest(t *testing.T) {
	r := tree(t, "7")
	if err := os.WriteFile(filepath.Join(string(r), settings[0]), []byte("lots"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := Conntrack{Max: 4000, UDP: time.Minute}.apply(r)
	if err == nil || !strings.Contains(err.Error(), "nf_conntrack_max") {
		t.Errorf("error %v doesn't name what failed", err)
	}
	if got, want := r.values(t), "lots 1000 7 7 60 7 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReadOnlyErrorNamesTheSetting(t *testing.T) {
	err := error(&ReadOnlyError{Setting: "sys/x", Was: 1, Want: 2, Err: os.ErrPermission})
	if !errors.Is(err, os.ErrPermission) || err.Error() != "sys/x is 1 and can't be made 2: permission denied" {
		t.Errorf("got %v", err)
	}
}
