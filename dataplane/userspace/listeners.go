package userspace

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// unopened is a listener that the table wants and that can't be opened, because another
// process has its port, for instance. Key is zero if there are more of them.
type unopened struct {
	Key model.Key
	Why string
}

// open opens and closes the listeners of frontends as the table says, and tries those
// again that couldn't be opened before. It returns those that still can't be.
func (r *relay) open(keys map[model.Key]bool) []unopened {
	for k := range r.unopened {
		keys[k] = true
	}
	clear(r.unopened)
	var failed []unopened
	var missing []model.Key
	for k := range keys { // what closes makes room
		f := r.table.Frontend(k)
		wanted, have := f != nil && listens(r.table, f), r.sockets[k]
		switch {
		case wanted && have == nil:
			missing = append(missing, k)
		case !wanted && have != nil:
			delete(r.sockets, k)
			have.close()
		}
	}
	for i, k := range missing {
		if len(r.sockets) >= r.most {
			for _, late := range missing[i:] {
				r.unopened[late] = true
			}
			failed = append(failed, unopened{Why: tooMany(len(r.sockets)+len(missing)-i, r.most)})
			break
		}
		s, err := r.listen(k)
		if err != nil {
			r.unopened[k] = true
			failed = append(failed, unopened{k, fmt.Sprintf("listen for %s at %s: %v", r.table.Frontend(k).Name, k, err)})
			continue
		}
		r.sockets[k] = s
	}
	return failed
}

// tooMany says that there are more frontends than this process may have files.
func tooMany(wanted, most int) string {
	return fmt.Sprintf("listen: %d Service addresses and ports take as many open files, and a process may have no more than %d beside its connections here: "+
		"raise its limit (ulimit -n, LimitNOFILE in systemd), or give it CAP_SYS_RESOURCE", wanted, most)
}

// mostListeners is how many listeners there may be: a quarter of the files that
// a process may open is for connections, or none could be accepted any more.
func mostListeners() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt // listening itself will tell
	}
	return int(min(limit.Cur-limit.Cur/4, math.MaxInt32))
}
