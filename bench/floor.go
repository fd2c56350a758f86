package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// measureFloor shows the limit of the iptables modes: what iptables-restore
// takes to add one empty chain to the rules that there are. The legacy variant
// reads and writes the whole table for it, twice through the kernel.
func measureFloor(ctx context.Context, p *patient) error {
	variant, found := strings.CutPrefix(p.mode.name, "iptables-")
	if !found {
		return nil
	}
	const times = 5
	var wall, user, system time.Duration
	for i := range times {
		cmd := exec.CommandContext(ctx, "iptables-"+variant+"-restore", "--noflush", "--wait", "5")
		cmd.Stdin = strings.NewReader(fmt.Sprintf("*nat\n:BENCH-%d - [0:0]\nCOMMIT\n", i))
		var said bytes.Buffer
		cmd.Stderr = &said
		began := time.Now()
		if err := p.site.node.Start(cmd); err != nil {
			return fmt.Errorf("start %s: %w", cmd.Path, err)
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd.Path, err, said.String())
		}
		wall += time.Since(began)
		user += cmd.ProcessState.UserTime()
		system += cmd.ProcessState.SystemTime()
	}
	p.record("floor", "%s: %s in iptables-restore itself, %s in the kernel",
		milliseconds(wall/times), milliseconds(user/times), milliseconds(system/times))
	return nil
}
