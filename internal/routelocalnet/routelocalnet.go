// Package routelocalnet makes the kernel route packets from and to 127.0.0.0/8 while
// a data plane needs it. A connection from 127.0.0.1 to a node port leaves
// the node with that source until it is masqueraded, and its answers come back
// to it; the kernel lets neither pass unless net.ipv4.conf.all.route_localnet is
// set (Documentation/networking/ip-sysctl.rst). It is one setting, whichever
// planes need it, so it is kept in one place: a plane that gives way to another
// one must not take it away.
package routelocalnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// Path is where the setting is.
const Path = "/proc/sys/net/ipv4/conf/all/route_localnet"

// Possible reports whether the setting is as needed or may be changed.
func Possible() bool {
	value, err := os.ReadFile(Path)
	return err == nil && (strings.TrimSpace(string(value)) == on || unix.Access(Path, unix.W_OK) == nil)
}

// Keeper is one plane's part in it.
type Keeper struct {
	file, plane   string
	known, wanted bool // what Keep was last asked for
}

// New makes that of the plane of this name. What the setting was is kept in a
// directory, since another process may have to put it back.
func New(stateDir, plane string) *Keeper {
	return &Keeper{file: filepath.Join(stateDir, "route_localnet.json"), plane: plane}
}

const on = "1"

// record is the file's content: what the setting was, and who has needed it since.
type record struct {
	Was    string   `json:"was"`
	Planes []string `json:"planes"`
}

// Keep says whether the plane needs it, and has it so. If that is what it said
// before, it looks only if check is true. A setting that was made by somebody
// else stays as it is.
func (k *Keeper) Keep(needed, check bool) error {
	if k.known && k.wanted == needed && !check {
		return nil
	}
	r, err := k.load()
	if err == nil {
		if needed {
			err = k.need(r)
		} else {
			err = k.release(r)
		}
	}
	if err != nil {
		return fmt.Errorf("set sysctl net.ipv4.conf.all.route_localnet, which node ports on localhost need: %w", err)
	}
	k.known, k.wanted = true, needed
	return nil
}

func (k *Keeper) need(r *record) error {
	value, err := os.ReadFile(Path)
	if err != nil {
		return err
	}
	is := strings.TrimSpace(string(value))
	if r == nil {
		if is == on {
			return nil // somebody else's doing, and not to be undone
		}
		r = &record{Was: is}
	}
	if !slices.Contains(r.Planes, k.plane) {
		r.Planes = append(r.Planes, k.plane)
		if err := k.save(r); err != nil {
			return err
		}
	}
	if is == on {
		return nil
	}
	return set(on)
}

func (k *Keeper) release(r *record) error {
	if r == nil || !slices.Contains(r.Planes, k.plane) {
		return nil
	}
	r.Planes = slices.DeleteFunc(r.Planes, func(p string) bool { return p == k.plane })
	if len(r.Planes) > 0 {
		return k.save(r)
	}
	if err := set(r.Was); err != nil {
		return err
	}
	return os.Remove(k.file)
}

// load gives what is kept; nil if nothing is.
func (k *Keeper) load() (*record, error) {
	content, err := keptfile.Load(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("read %s: %w", k.file, err)
	}
	return &r, nil
}

func (k *Keeper) save(r *record) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o755); err != nil {
		return err
	}
	return keptfile.Save(k.file, content, 0o600)
}

func set(value string) error { return os.WriteFile(Path, []byte(value+"\n"), 0) }
