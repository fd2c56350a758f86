package ebpf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// bpffs is where the file system is mounted that keeps maps and links while no
// process has them open.
const bpffs = "/sys/fs/bpf"

// layout is the version of the maps' layout (bpf/types.h, bpf/maps.h). Maps of
// another one are not used; they go when the plane has taken over.
const layout = "v1"

// nodesDir is where everything is pinned, in a directory for each node: several
// nodes may share a kernel. What tells them apart is the network namespace, by
// its cookie, which is never used again, or, on kernels that have none, by its
// inode.
var nodesDir = filepath.Join(bpffs, "fairway")

func nodeDir() (string, error) {
	cookie, err := netnsCookie()
	if err != nil {
		return "", err
	}
	if cookie != 0 {
		return filepath.Join(nodesDir, fmt.Sprint(cookie)), nil
	}
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return "", fmt.Errorf("identify network namespace: %w", err)
	}
	return filepath.Join(nodesDir, fmt.Sprint("inode", stat.Ino)), nil
}

// mountBPFFS mounts the file system if it isn't.
func mountBPFFS() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(bpffs, &stat); err != nil {
		return &kernel.MissingError{What: "the BPF file system", Since: "4.4", Err: err}
	}
	if stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system on %s: %w", bpffs, err)
	}
	return nil
}

// store are the maps of a node.
type store struct {
	dir     string // the node's
	maps    map[string]*ebpf.Map
	tables  map[table]*kernelTable
	growing map[string]*growing
	counts  *chunked
	states  *chunked
}

// makeDir makes a node's directory. Another node that is removed may take away,
// in between, what they share.
func makeDir(dir string) (err error) {
	for range 10 {
		if err = os.MkdirAll(dir, 0o700); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// openStore opens the pinned maps that the objects need, and makes those that
// aren't there.
func openStore(dir string, specs ...*ebpf.CollectionSpec) (*store, error) {
	if err := mountBPFFS(); err != nil {
		return nil, err
	}
	pins := filepath.Join(dir, layout)
	if err := makeDir(pins); err != nil {
		return nil, fmt.Errorf("open maps: %w", err)
	}
	s := &store{dir: dir, maps: map[string]*ebpf.Map{}, tables: map[table]*kernelTable{}}
	for _, spec := range specs {
		for name, m := range spec.Maps {
			if s.maps[name] != nil || strings.HasPrefix(name, ".") {
				continue
			}
			if name == scratch {
				continue
			}
			opened, err := openPinned(m, pins)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("open map %s: %w", name, err), s.close())
			}
			s.maps[name] = opened
		}
	}
	if err := s.openTables(specs[0].Maps); err != nil {
		return nil, errors.Join(err, s.close())
	}
	all := map[string]*ebpf.MapSpec{}
	for _, spec := range specs {
		maps.Copy(all, spec.Maps)
	}
	if err := s.openGrowing(all); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// scratch is a map that holds nothing from one packet to the next: each load of
// the programs has its own.
const scratch = "works"

// openPinned opens a pinned map or makes it. One that doesn't fit, because
// another version made it, is made anew; programs of that version go on with
// theirs until they are replaced.
func openPinned(spec *ebpf.MapSpec, dir string) (*ebpf.Map, error) {
	spec = spec.Copy()
	spec.Pinning = ebpf.PinByName
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if !errors.Is(err, ebpf.ErrMapIncompatible) {
		return m, err
	}
	if err := os.Remove(filepath.Join(dir, spec.Name)); err != nil {
		return nil, err
	}
	return ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
}

// inner is what the elements of a map of maps are made from. It says nothing of
// their types: the kernel would have to read those for each one.
func inner(of *ebpf.MapSpec) *ebpf.MapSpec {
	spec := of.InnerMap.Copy()
	spec.Key, spec.Value = nil, nil
	return spec
}

func (s *store) openTables(specs map[string]*ebpf.MapSpec) error {
	s.counts = &chunked{s.maps["counts"], inner(specs["counts"]), map[uint32]*chunk{}}
	s.states = &chunked{s.maps["states"], inner(specs["states"]), map[uint32]*chunk{}}
	for _, name := range tables {
		t := &kernelTable{name: name}
		s.tables[name] = t
		if name == prefixes {
			t.inner = s.maps[string(name)]
			continue
		}
		t.outer, t.spec = s.maps[string(name)], inner(specs[string(name)])
		if err := t.openInner(); err != nil {
			return err
		}
	}
	return nil
}

// apply does what a plan says. Elements for which there is no room are left
// out and said in the error.
func (s *store) apply(p *plan) error {
	leftOut, where := 0, []string(nil)
	for _, t := range tables {
		missing, err := s.tables[t].putAll(p.put[t])
		if err != nil {
			return err
		}
		if missing > 0 {
			leftOut, where = leftOut+missing, append(where, string(t))
		}
	}
	for _, t := range slices.Backward(tables) {
		for _, e := range p.delete[t] {
			if err := s.tables[t].remove(e.key); err != nil {
				return err
			}
		}
	}
	if leftOut > 0 {
		return &kernel.FullError{What: "eBPF map " + strings.Join(where, ", "), LeftOut: leftOut}
	}
	return nil
}

// reserve makes room for entries, and for what ids count, which it sets to 0. The
// kernel makes each change of a map of maps wait, so they are made together.
func (s *store) reserve(target byTable, ids []given) error {
	var group errgroup.Group
	for _, name := range tables {
		if n := len(target[name]); n > 0 {
			group.Go(func() error { return s.tables[name].reserve(n + n/2) })
		}
	}
	for _, c := range []*chunked{s.counts, s.states} {
		group.Go(func() error { return c.prepare(ids) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, g := range ids {
		if err := errors.Join(s.counts.clear(g), s.states.clear(g)); err != nil {
			return err
		}
	}
	return nil
}

// read reads the tables back.
func (s *store) read() (contents, error) {
	out := newContents()
	for _, t := range tables {
		var err error
		if out[t], err = s.tables[t].read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *store) close() error {
	var errs []error
	for _, t := range s.tables { // nobody may be opening one just now
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	for _, g := range s.growing {
		errs = append(errs, g.close())
	}
	for _, t := range s.tables {
		if t.outer != nil && t.inner != nil {
			errs = append(errs, t.inner.Close())
		}
	}
	if s.counts != nil {
		errs = append(errs, s.counts.close(), s.states.close())
	}
	return errors.Join(errs...)
}

// RemoveDead removes what nodes have left that are no more: their cgroups are
// gone, which detaches programs, if not at once. Planes begin with it, too.
func RemoveDead() error {
	nodes, err := os.ReadDir(nodesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pinned maps: %w", err)
	}
	for _, n := range nodes {
		dir := filepath.Join(nodesDir, n.Name())
		dead, err := isDead(dir)
		if err != nil {
			return err
		}
		if dead {
			if err := removePins(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func isDead(dir string) (bool, error) {
	pins, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	for _, pin := range pins {
		if at, err := attachedTo(pin); err != nil || at != 0 {
			return false, err
		}
		if _, err := os.Lstat(pin); err != nil {
			return false, nil // somebody is at work there
		}
	}
	return len(pins) > 0, nil
}

// removePins removes a node's directory with all pins.
func removePins(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pinned maps: %w", err)
	}
	err := os.Remove(filepath.Dir(dir)) // shared with other nodes
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove pinned maps: %w", err)
	}
	return nil
}

// forSpec are those of the maps that an object has.
func (s *store) forSpec(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m := s.maps[name]; m != nil {
			out[name] = m
		}
	}
	return out
}
