package check

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnit asks a systemctl that says what a file says, since few machines that
// run tests have systemd running: of systemctl, its arguments, what it prints and
// its exit code are as systemctl(1) says.
func TestUnit(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("systemctl", `#!/bin/sh
[ "$1 $2 $3 $#" = "is-active -- web.service 3" ] || { echo "called with $*" >&2; exit 1; }
read -r code state <`+filepath.Join(dir, "state")+`
[ "$state" = hangs ] && exec sleep 60
echo "$state"
exit "$code"
`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		state   string
		outcome Outcome
		reason  string
	}{
		{"0 active", Passed, ""},
		{"3 inactive", Refused, "unit web.service is inactive"}, // counts at once
		{"3 failed", Refused, "unit web.service is failed"},
		{"3 activating", Refused, "unit web.service is activating"},
		{"4 unknown", Refused, "unit web.service is unknown"},
		{"1 ", Wrong, "systemd doesn't answer"},
	} {
		write("state", c.state+"\n")
		expect(t, ask(t, "127.0.0.1:1", "unit:web.service", "interval=1m", "timeout=1m"), c.outcome, c.reason)
	}
	write("state", "0 hangs\n")
	expect(t, ask(t, "127.0.0.1:1", "unit:web.service"), Silent, "")
	if err := os.Remove(filepath.Join(dir, "systemctl")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	expect(t, ask(t, "127.0.0.1:1", "unit:web.service"), Wrong, "systemd can't be asked")
}
