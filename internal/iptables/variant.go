package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Variant is one of the two iptables.
type Variant string

// The variants.
const (
	NFT    Variant = "nft"
	Legacy Variant = "legacy"
)

// Variants are both variants.
func Variants() []Variant { return []Variant{NFT, Legacy} }

// directories are searched after PATH, which lacks them in many services.
var directories = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// Open returns the tool of a variant. A kernel.MissingError names the program
// that isn't installed. IPv6 programs may be absent until they are needed.
func Open(ctx context.Context, v Variant) (*Tool, error) {
	t := &Tool{variant: v, paths: map[string]string{}, lockWait: defaultLockWait}
	for _, f := range Families() {
		for _, action := range []string{"", "-restore", "-save"} {
			if path := lookVariant(ctx, f, action, v); path != "" {
				t.paths[f.Command()+action] = path
			}
		}
	}
	for _, program := range []string{"iptables-restore", "iptables-save"} {
		if t.paths[program] == "" {
			return nil, &kernel.MissingError{
				What: fmt.Sprintf("the program %s of the %s variant (package iptables)", program, v),
				Err:  &exec.Error{Name: program, Err: exec.ErrNotFound},
			}
		}
	}
	return t, nil
}

// lookVariant finds iptables-nft-restore, or iptables-restore if that is of
// the variant.
func lookVariant(ctx context.Context, f Family, action string, v Variant) string {
	if path := look(f.Command() + "-" + string(v) + action); path != "" {
		return path
	}
	path := look(f.Command() + action)
	if path != "" && variantOf(ctx, path) == v {
		return path
	}
	return ""
}

func look(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range directories {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	return ""
}

// variantOf asks a program what it is: "iptables v1.8.9 (nf_tables)". Before
// version 1.8 there was only one and no name for it.
func variantOf(ctx context.Context, path string) Variant {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return ""
	}
	if strings.Contains(string(out), "nf_tables") {
		return NFT
	}
	return Legacy
}

// Find returns the tool to use on this machine: of the wanted variant if one
// is named; else the one in which other components' Kubernetes chains are
// found; else the one with more rules; else that of the plain iptables
// command.
func Find(ctx context.Context, want string) (*Tool, error) {
	switch Variant(want) {
	case NFT, Legacy:
		return Open(ctx, Variant(want))
	case "":
	default:
		return nil, fmt.Errorf("iptables variant %q: must be nft or legacy", want)
	}
	var tools []*Tool
	var problems []error
	for _, v := range Variants() {
		t, err := Open(ctx, v)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		tools = append(tools, t)
	}
	if len(tools) == 0 {
		if none, err := traceless(); err == nil && none {
			return nil, &kernel.MissingError{What: "iptables", Err: errors.New("no program is installed, and the kernel holds no chains of Services")}
		}
		return nil, problems[0]
	}
	return choose(ctx, tools), nil
}

// choose picks the variant that is in use.
func choose(ctx context.Context, tools []*Tool) *Tool {
	traces := make([]trace, len(tools))
	for i, t := range tools {
		traces[i] = t.traces(ctx)
		if traces[i].hint {
			return t
		}
	}
	if len(tools) == 1 {
		return tools[0]
	}
	switch a, b := traces[0], traces[1]; {
	case a.kube != b.kube:
		return tools[fewer(a.kube, b.kube)]
	case a.rules != b.rules:
		return tools[fewer(a.rules, b.rules)]
	}
	if path := look("iptables"); path != "" {
		plain := variantOf(ctx, path)
		if i := slices.IndexFunc(tools, func(t *Tool) bool { return t.variant == plain }); i >= 0 {
			return tools[i]
		}
	}
	return tools[0]
}

// fewer is the index of the larger of two numbers: 1 if the first has fewer.
func fewer(a, b int) int {
	if a < b {
		return 1
	}
	return 0
}

// trace is what a variant's tables hold.
type trace struct {
	hint  bool // a chain with which the kubelet says which variant it uses
	kube  int  // chains named KUBE-*
	rules int
}

// traces reads what is installed. What can't be read isn't there.
func (t *Tool) traces(ctx context.Context) trace {
	var found trace
	for _, f := range Families() {
		for _, name := range []string{"mangle", "nat", "filter"} {
			table, err := t.traceTable(ctx, f, name)
			if err != nil {
				continue
			}
			found.hint = found.hint || table.hint
			found.kube += table.kube
			found.rules += table.rules
		}
	}
	return found
}

func (t *Tool) traceTable(ctx context.Context, f Family, name string) (trace, error) {
	var found trace
	err := t.Walk(ctx, f, name, func(c *Chain) {
		if name == "mangle" && (c.Name == "KUBE-KUBELET-CANARY" || c.Name == "KUBE-IPTABLES-HINT") {
			found.hint = true
		}
		if strings.HasPrefix(c.Name, "KUBE-") {
			found.kube++
		}
		found.rules += len(c.Rules)
	})
	return found, err
}

// LegacyTables lists the tables of ip_tables in this network namespace: the calling thread's,
// which is the one that programs are started in. A table is there only once somebody has used
// it. A kernel that hides the names from this process gives fs.ErrPermission.
func LegacyTables(f Family) ([]string, error) {
	file := "/proc/thread-self/net/ip_tables_names"
	if f == IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) { // no module
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read names of iptables tables: %w", err)
	}
	return strings.Fields(string(names)), nil
}

// HasLegacyTable reports whether ip_tables has a table. Where the names are hidden it can't be
// used either.
func HasLegacyTable(f Family, table string) (bool, error) {
	tables, err := LegacyTables(f)
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return slices.Contains(tables, table), err
}
