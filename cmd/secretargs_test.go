//go:build !agentonly

package cmd

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWithoutToken(t *testing.T) {
	for _, c := range []struct{ args, rest, token string }{
		{"fairway join https://a --token x.y", "fairway join https://a", "x.y"},
		{"/usr/bin/fairway server --token=x --join https://a", "/usr/bin/fairway server --join https://a", "x"},
		{"fairway up --join a --token x", "fairway up --join a", "x"},
		{"fairway install server --token x --join a", "fairway install server --join a", "x"},
		{"fairway join --token", "", ""},
		{"fairway join https://a --token-file -", "", ""},
		{"fairway kubectl get pods --token x", "", ""}, // kubectl's own
		{"kubectl get pods --token x", "", ""},
		{"fairway join -- --token x", "", ""},
	} {
		rest, token, found := withoutToken(strings.Fields(c.args))
		if found != (c.token != "") || token != c.token || found && !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%s: %v, %q, %v", c.args, rest, token, found)
		}
	}
}

// TestNoTokenIsReadable: whichever way commands that join are given a token, while they
// run it is in no arguments and no environment, which other users can read.
func TestNoTokenIsReadable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a server that says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	secret := "0123456789abcdef"
	token := map[bool]string{}
	for _, server := range []bool{false, true} {
		token[server] = "abcdef." + secret + "@sha256:" + strings.Repeat("0", 64)
		if server {
			token[server] = "server-" + token[server]
		}
	}
	for _, command := range []string{"join URL", "server --bind-address 127.0.0.2 --secure-port 0 --join URL", "up --bind-address 127.0.0.3 --secure-port 0 --join URL"} {
		for way, flags := range map[string][]string{"argument": {"--token", ""}, "joined": {"--token="}, "file": {"--token-file", "FILE"}, "stdin": {"--token-file", "-"}} {
			t.Run(strings.Fields(command)[0]+" "+way, func(t *testing.T) {
				dir := t.TempDir()
				token := token[!strings.HasPrefix(command, "join")]
				file := filepath.Join(dir, "token")
				if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				args := strings.Fields(strings.ReplaceAll(command, "URL", "https://"+l.Addr().String()))
				args = append(args, "--data-dir="+filepath.Join(dir, "data"))
				for _, f := range flags {
					if f == "" || f == "--token=" {
						f += token
					}
					args = append(args, strings.ReplaceAll(f, "FILE", file))
				}
				c := exec.Command(os.Args[0], args...)
				c.Env = append(os.Environ(), asFairway+"=1")
				c.Stdin = strings.NewReader(token + "\n")
				out := &output{}
				c.Stdout, c.Stderr = out, out
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan struct{})
				go func() { _ = c.Wait(); close(ended) }()
				t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGKILL); <-ended })
				asked := make(chan struct{})
				go func() {
					if peer, err := l.Accept(); err == nil {
						t.Cleanup(func() { _ = peer.Close() })
						close(asked)
					}
				}()
				select { // it has taken the token up
				case <-asked:
				case <-ended:
					t.Fatalf("it ended:\n%s", out)
				case <-time.After(waitTimeout):
					t.Fatalf("it doesn't ask:\n%s", out)
				}
				for _, name := range []string{"cmdline", "environ"} {
					data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.Process.Pid, name))
					if err != nil || bytes.Contains(data, []byte(secret)) {
						t.Errorf("%s: %v: %q", name, err, bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
					}
				}
				if strings.Contains(out.String(), secret) {
					t.Errorf("it prints the token:\n%s", out)
				}
			})
		}
	}
}
