package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDump holds what is read over netlink against the words of iptables-save,
// for the rules that this project's planes install.
func TestDump(t *testing.T) {
	for _, f := range Families() {
		paths, err := filepath.Glob("../../dataplane/iptables/testdata/*." + f.Command() + ".rules")
		if err != nil || len(paths) == 0 {
			t.Fatalf("find rules: %d, %v", len(paths), err)
		}
		for _, path := range append(paths, "testdata/matches."+f.Command()+".rules") {
			t.Run(filepath.Base(path), func(t *testing.T) {
				inNamespace(t)
				rules, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				tool := open(t, NFT)
				if err := tool.Restore(context.Background(), f, rules); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"nat", "filter", "mangle"} {
					checkDump(t, tool, f, name)
				}
			})
		}
	}
}

func checkDump(t *testing.T, tool *Tool, f Family, name string) {
	t.Helper()
	want := &Table{Name: name}
	if err := tool.walkByProgram(context.Background(), f, name, want.add); err != nil {
		t.Fatal(err)
	}
	got := &Table{Name: name}
	unread, err := walk(context.Background(), f, name, got.add)
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range unread {
		t.Errorf("chain %s of table %s was not understood: %q, want %q", chain.Name, name, chain.Rules, want.Chain(chain.Name).Rules)
	}
	compareTables(t, got, want)
}

// compareTables compares two readings of a table. The program also tells of the
// kernel's chains that aren't there: empty ones.
func compareTables(t *testing.T, got, want *Table) {
	t.Helper()
	for _, g := range got.Chains {
		if want.Chain(g.Name) == nil {
			t.Errorf("table %s has no chain %s", want.Name, g.Name)
		}
	}
	for _, w := range want.Chains {
		g := got.Chain(w.Name)
		switch {
		case g == nil && w.Policy == "ACCEPT" && len(w.Rules) == 0:
		case g == nil:
			t.Errorf("chain %s of table %s is missing", w.Name, want.Name)
		case g.Policy != w.Policy:
			t.Errorf("chain %s of table %s has policy %s, want %s", w.Name, want.Name, g.Policy, w.Policy)
		case !slices.Equal(g.Rules, w.Rules):
			t.Errorf("chain %s of table %s:\n%s\nwant\n%s", w.Name, want.Name, strings.Join(g.Rules, "\n"), strings.Join(w.Rules, "\n"))
		}
	}
}

// TestStrangers has rules that only the program understands among many that are
// read over netlink.
func TestStrangers(t *testing.T) {
	inNamespace(t)
	tool := open(t, NFT)
	var in Input
	b := in.Block("filter")
	for _, name := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P"} {
		b.Chain(name, "-p tcp -j RETURN")
	}
	b.Append("C", `-m limit --limit 3/min -m comment --comment "it's" -j LOG --log-prefix "odd: "`)
	b.Append("C", "-j DROP")
	b.Append("M", "-p tcp -m multiport --dports 80,443 -j ACCEPT")
	b.Append("INPUT", "-j M")
	ctx := context.Background()
	if err := tool.Restore(ctx, IPv4, in.Bytes()); err != nil {
		t.Fatal(err)
	}
	want := &Table{Name: "filter"}
	if err := tool.walkByProgram(ctx, IPv4, "filter", want.add); err != nil {
		t.Fatal(err)
	}
	unread, err := walk(ctx, IPv4, "filter", func(*Chain) {})
	if err != nil || len(unread) != 2 {
		t.Errorf("%d chains were not understood, want C and M; %v", len(unread), err)
	}
	got, err := tool.Save(ctx, IPv4, "filter")
	if err != nil {
		t.Fatal(err)
	}
	compareTables(t, got, want)
}

// TestManyStrangers has the program read what netlink has given up on: each chain
// is there once.
func TestManyStrangers(t *testing.T) {
	inNamespace(t)
	tool := open(t, NFT)
	var in Input
	b := in.Block("filter")
	b.Chain("AN-ORDINARY", "-p tcp -j RETURN")
	for i := range 12 {
		b.Chain(fmt.Sprintf("MINE-%d", i), "-p tcp -j RETURN")
		b.Chain(fmt.Sprintf("OTHER-%d", i), "-p tcp -m multiport --dports 80,443 -j ACCEPT")
	}
	ctx := context.Background()
	if err := tool.Restore(ctx, IPv4, in.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := walk(ctx, IPv4, "filter", func(*Chain) {}); !errors.Is(err, errOthers) {
		t.Errorf("reading over netlink ended with %v, want that it leaves it to the program", err)
	}
	got, err := tool.Save(ctx, IPv4, "filter")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Chains) != len(got.byName) || got.Chain("AN-ORDINARY") == nil || len(got.Chain("OTHER-7").Rules) != 1 || len(got.Chain("MINE-7").Rules) != 1 {
		t.Errorf("%d chains, %d of them with names of their own", len(got.Chains), len(got.byName))
	}
}
