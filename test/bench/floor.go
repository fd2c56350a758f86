package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// measureFloor shows the limit of the iptables modes: what iptables-restore
// takes to add one empty chain to the rules that there are, and then a chain with
// one rule. The legacy variant reads and writes the whole table for either. The
// nft variant has the kernel walk through all rules that packets can reach as
// soon as a transaction adds a rule that leads anywhere (nft_table_validate),
// even if no packet can reach that one.
func measureFloor(ctx context.Context, p *subject) error {
	variant, found := strings.CutPrefix(p.mode.name, "iptables-")
	if !found {
		return nil
	}
	const times = 5
	for _, what := range []struct{ row, rule string }{{"floor", ""}, {"floor rule", "-A BENCH -m comment --comment bench -j RETURN\n"}} {
		var wall, user, system time.Duration
		for range times {
			began := time.Now()
			state, err := p.restore(ctx, variant, "*nat\n:BENCH - [0:0]\n"+what.rule+"COMMIT\n")
			if err != nil {
				return err
			}
			wall += time.Since(began)
			user += state.UserTime()
			system += state.SystemTime()
			if _, err := p.restore(ctx, variant, "*nat\n:BENCH - [0:0]\n-X BENCH\nCOMMIT\n"); err != nil {
				return err
			}
		}
		p.record(what.row, "%s: %s in iptables-restore itself, %s in the kernel",
			milliseconds(wall/times), milliseconds(user/times), milliseconds(system/times))
	}
	return nil
}

// restore feeds iptables-restore on the node.
func (p *subject) restore(ctx context.Context, variant, input string) (*os.ProcessState, error) {
	cmd := exec.CommandContext(ctx, "iptables-"+variant+"-restore", "--noflush", "--wait", "5")
	cmd.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := p.site.node.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Path, err, said.String())
	}
	return cmd.ProcessState, nil
}
