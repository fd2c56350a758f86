package legacytrace

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// markName is the nftables table that says what the setting was, for as long as it is another
// one: by empty chains with names such as "family-2-was-NONE". Like the setting it is the
// network namespace's, and outlives every process.
const markName = "fairway-nf_log"

const (
	markBefore = "family-"
	markWas    = "-was-"
)

var markTable = &nftables.Table{Family: nftables.TableFamilyINet, Name: markName}

// readMark is what the setting was; nil if there is no mark.
func readMark() (setting, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("read what the logger's setting was: %w", err)
	}
	chains, err := conn.ListChainsOfTableFamily(markTable.Family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // without nf_tables nothing is traced
	}
	if err != nil {
		return nil, fmt.Errorf("read what the logger's setting was: %w", err)
	}
	var was setting
	for _, c := range chains {
		if c.Table.Name != markName {
			continue
		}
		number, logger, _ := strings.Cut(strings.TrimPrefix(c.Name, markBefore), markWas)
		family, err := strconv.ParseUint(number, 10, 8)
		if err != nil || logger == "" {
			continue // somebody else's
		}
		if was == nil {
			was = setting{}
		}
		was[uint8(family)] = logger
	}
	return was, nil
}

// mark keeps what the setting is now.
func (s setting) mark() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("keep what the logger's setting is: %w", err)
	}
	conn.AddTable(markTable) // so that there is one to be replaced
	conn.DelTable(markTable)
	conn.AddTable(markTable)
	for family, was := range s {
		conn.AddChain(&nftables.Chain{Table: markTable, Name: markBefore + strconv.Itoa(int(family)) + markWas + was})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("keep what the logger's setting is: %w", err)
	}
	return nil
}

// unmark removes the mark, if there is one.
func unmark() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("forget what the logger's setting was: %w", err)
	}
	conn.DelTable(markTable)
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget what the logger's setting was: %w", err)
	}
	return nil
}

// release puts the setting back that nobody keeps any more: a keeper that lives does so
// itself, and the error is errKept. before is what is known of it beside the mark. It returns
// what there was to put back.
func release(before setting) (setting, error) {
	listener, err := listen() // which no keeper has, nor gets meanwhile
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errKept
	}
	if err != nil {
		return nil, fmt.Errorf("put back the logger's setting: %w", err)
	}
	defer listener.Close() //nolint:errcheck // it has served
	was, err := readMark()
	if was == nil {
		was = before
	}
	if len(was) == 0 {
		return nil, err
	}
	if err := was.restore(); err != nil {
		return was, err // the mark stays
	}
	return was, unmark()
}

var errKept = errors.New("a keeper of the logger's setting lives")

func listen() (*net.UnixListener, error) {
	return net.ListenUnix("unixpacket", &net.UnixAddr{Name: address, Net: "unixpacket"})
}

// Leftovers says what the logger's setting was before a trace that was killed together with
// its keeper; "" if there is no such thing here.
func Leftovers() (string, error) {
	was, err := readMark()
	if len(was) == 0 || kept() {
		return "", err
	}
	return was.String(), err
}

// kept reports whether a keeper lives.
func kept() bool {
	listener, err := listen()
	if err == nil {
		_ = listener.Close() // it has served
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// Sweep puts back what Leftovers tells, and returns it.
func Sweep() (string, error) {
	was, err := release(nil)
	if errors.Is(err, errKept) {
		return "", nil
	}
	if len(was) == 0 {
		return "", err
	}
	return was.String(), err
}
