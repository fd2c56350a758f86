package userspace

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// open opens and closes the listeners of frontends as the table says. The error
// names the first few that couldn't be opened, and says how many there are.
func (r *relay) open(keys map[model.Key]bool) error {
	var failed failures
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
			failed.add(len(missing)-i, tooMany{wanted: len(r.sockets) + len(missing) - i, most: r.most})
			break
		}
		s, err := r.listen(k)
		if err != nil {
			failed.add(1, fmt.Errorf("listen for %s at %s: %w", r.table.Frontend(k).Name, k, err))
			continue
		}
		r.sockets[k] = s
	}
	return failed.err()
}

// tooMany says that there are more frontends than this process may have files.
type tooMany struct{ wanted, most int }

func (e tooMany) Error() string {
	return fmt.Sprintf("listen: %d Service addresses and ports take as many open files, and a process may have no more than %d beside its connections here: "+
		"raise its limit (ulimit -n, LimitNOFILE in systemd), or give it CAP_SYS_RESOURCE", e.wanted, e.most)
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

// failures are errors of which there may be as many as Services.
type failures struct {
	first []error
	count int
}

// mostNamed is how many failures are told one by one.
const mostNamed = 5

func (f *failures) add(n int, err error) {
	f.count += n
	if len(f.first) < mostNamed {
		f.first = append(f.first, err)
	}
}

func (f *failures) err() error {
	list := f.first
	if more := f.count - len(list); more > 0 && len(list) > 0 {
		list = append(list, fmt.Errorf("so %d listeners are not open in all", f.count))
	}
	return errors.Join(list...)
}
