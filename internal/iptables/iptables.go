// Package iptables runs iptables-restore and iptables-save of the right
// variant. There are two: "legacy" (ip_tables in the kernel) and "nft"
// (iptables commands translated to nf_tables), and what one of them installs
// the other neither sees nor removes, so a node's proxy has to use the one
// that everybody else on the node uses.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Family is an IP family: each has its own tables and commands.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families are both families, in the order in which they are programmed.
func Families() []Family { return []Family{IPv4, IPv6} }

// String names the family for people.
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// Command is the name of the family's command: "iptables" or "ip6tables".
func (f Family) Command() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Tool runs the commands of one variant.
type Tool struct {
	variant Variant
	paths   map[string]string // "iptables-restore" to the program of this variant
	// lockWait is for how many seconds a program of the legacy variant waits for the
	// lock of xtables. Who holds it longer is stuck, and the caller tries again.
	lockWait string
}

const defaultLockWait = "10"

// Variant tells which variant this is.
func (t *Tool) Variant() Variant { return t.variant }

// Restore feeds input to iptables-restore --noflush: chains that it declares
// are emptied or made, everything else stays. Each "*table ... COMMIT" of the
// input comes into force at once or not at all. An error quotes the line that
// was refused.
func (t *Tool) Restore(ctx context.Context, f Family, input []byte) error {
	stderr, err := t.run(ctx, f.Command()+"-restore", input, nil, "--noflush", "-w", t.lockWait)
	if err != nil {
		return t.explain(f.Command()+"-restore", input, stderr, err)
	}
	return nil
}

// Walk reads one table back, chain by chain in no particular order; the chains are
// visit's. A large table is never held as a whole. When reading fails, some chains
// may have been visited.
func (t *Tool) Walk(ctx context.Context, f Family, table string, visit func(*Chain)) error {
	if t.variant == Legacy {
		// Reading makes a legacy table that was not there.
		if there, err := HasLegacyTable(f, table); err != nil || !there {
			return err
		}
		return t.walkByProgram(ctx, f, table, visit)
	}
	return t.walkNFT(ctx, f, table, visit)
}

// walkByProgram has iptables-save read a table.
func (t *Tool) walkByProgram(ctx context.Context, f Family, table string, visit func(*Chain)) error {
	program := f.Command() + "-save"
	p := parser{visit: func(of string, c *Chain) {
		if of == table {
			visit(c)
		}
	}}
	stderr, err := t.run(ctx, program, nil, p.line, "-t", table)
	if err != nil {
		return t.explain(program, nil, stderr, err)
	}
	if err := p.end(); err != nil {
		return fmt.Errorf("read output of %s: %w", program, err)
	}
	return nil
}

// Save reads one table back.
func (t *Tool) Save(ctx context.Context, f Family, table string) (*Table, error) {
	read := &Table{Name: table}
	if err := t.Walk(ctx, f, table, read.add); err != nil {
		return nil, err
	}
	return read, nil
}

// Test is Restore without putting anything into force. Missing extensions are
// reported as kernel.MissingError.
func (t *Tool) Test(ctx context.Context, f Family, input []byte) error {
	program := f.Command() + "-restore"
	stderr, err := t.run(ctx, program, input, nil, "--noflush", "-w", t.lockWait, "--test")
	if err != nil {
		return t.explain(program, input, stderr, err)
	}
	if what := t.missing(string(stderr)); what != "" { // only a warning, without the kernel being asked
		return &kernel.MissingError{What: what, Err: &RestoreError{Program: program, Answer: answer(stderr), Err: errWarned}}
	}
	return nil
}

var errWarned = errors.New("warned only")

// run runs a program. It hands on each line that the program prints, without its
// end; the bytes are the caller's for that call only.
func (t *Tool) run(ctx context.Context, program string, stdin []byte, take func(line []byte), args ...string) (stderr []byte, err error) {
	path, ok := t.paths[program]
	if !ok {
		return nil, &exec.Error{Name: program, Err: exec.ErrNotFound}
	}
	if stderr, err := faultOf(ctx, program); err != nil {
		return stderr, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	lines := lineWriter{take: take}
	cmd.Stderr = &errs
	if take != nil {
		cmd.Stdout = &lines
	}
	err = cmd.Run()
	lines.end()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return errs.Bytes(), err
}
