package vm

import (
	"errors"
	"os"
	"strings"
	"time"
)

// ErrFrozen says that the machine stopped: it gave no sign of life any more, and
// was killed. Emulated processors do that, rarely, whatever runs on them.
var ErrFrozen = errors.New("the virtual machine froze")

// pulseTimeout is how long it may give none. It gives one each second, if the
// host has a processor for it.
const pulseTimeout = 2 * time.Minute

// watch kills the machine when it gives no sign of life for so long. It returns
// when the machine has ended.
func (m *Machine) watch(timeout time.Duration) {
	signs := make([]byte, 64)
	for {
		if err := m.pulse.host.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return
		}
		_, err := m.pulse.host.Read(signs)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			m.giveUp()
		}
		if err != nil {
			return
		}
	}
}

// giveUp kills the machine. What runs in it ends with ErrFrozen.
func (m *Machine) giveUp() {
	m.frozen.Store(true)
	m.kill()
}

// processes are those of a machine that should do something: where in the kernel
// each of them is. It asks over a line that nobody uses.
func (m *Machine) processes() string {
	const where = `for p in /proc/[1-9]*; do echo "$p $(tr '\0' ' ' <$p/cmdline)"; cat $p/stack; done 2>/dev/null`
	select {
	case l := <-m.free:
		defer func() { m.free <- l }()
		var text strings.Builder
		if _, err := l.run(where, &text, 10*time.Second); err != nil {
			text.WriteString(err.Error())
		}
		return text.String()
	default:
		return "every line is taken"
	}
}
