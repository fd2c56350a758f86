package iptables

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// inNamespace moves the test's thread into a network namespace of its own. The
// thread ends with the test, and the namespace with it.
func inNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (tests run as root): %v", err)
	}
}

func open(t *testing.T, v Variant) *Tool {
	t.Helper()
	tool, err := Open(context.Background(), v)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func each(t *testing.T, run func(t *testing.T, tool *Tool, f Family)) {
	for _, v := range Variants() {
		for _, f := range Families() {
			t.Run(string(v)+"/"+f.Command(), func(t *testing.T) {
				inNamespace(t)
				run(t, open(t, v), f)
			})
		}
	}
}

func TestRestoreAndSave(t *testing.T) {
	each(t, func(t *testing.T, tool *Tool, f Family) {
		ctx := context.Background()
		if err := tool.Test(ctx, f, []byte("*filter\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		var in Input
		b := in.Block("nat")
		b.Append("PREROUTING", `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
		b.Chain("KUBE-SERVICES", "-j KUBE-OLD")
		b.Chain("KUBE-OLD")
		if err := tool.Restore(ctx, f, in.Bytes()); err != nil {
			t.Fatal(err)
		}
		in = Input{}
		b = in.Block("nat")
		b.Chain("KUBE-SERVICES", `-p tcp -m comment --comment "a b" -m tcp --dport 80 -j RETURN`)
		b.DeleteChain("KUBE-OLD")
		if err := tool.Restore(ctx, f, in.Bytes()); err != nil {
			t.Fatal(err)
		}
		table, err := tool.Save(ctx, f, "nat")
		if err != nil {
			t.Fatal(err)
		}
		if table.Chain("KUBE-OLD") != nil {
			t.Error("KUBE-OLD is still there")
		}
		want := []string{`-p tcp -m comment --comment "a b" -m tcp --dport 80 -j RETURN`}
		if got := table.Chain("KUBE-SERVICES"); got == nil || !slices.Equal(got.Rules, want) || got.Policy != "-" {
			t.Errorf("KUBE-SERVICES is %+v, want rules %q", got, want)
		}
		if got := table.Chain("PREROUTING"); len(got.Rules) != 1 || got.Policy != "ACCEPT" {
			t.Errorf("PREROUTING is %+v, want one rule", got)
		}
	})
}

func TestSaveMakesNothing(t *testing.T) {
	inNamespace(t)
	tool := open(t, Legacy)
	for _, f := range Families() {
		table, err := tool.Save(context.Background(), f, "nat")
		if err != nil {
			t.Fatal(err)
		}
		if there, err := HasLegacyTable(f, "nat"); err != nil || there || len(table.Chains) != 0 {
			t.Errorf("%s: table nat made by reading it (%v): %v", f, err, table)
		}
	}
}

func TestRestoreQuotesTheLine(t *testing.T) {
	each(t, func(t *testing.T, tool *Tool, f Family) {
		input := "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -p tcp -m tcp --dport 99999 -j ACCEPT\nCOMMIT\n"
		err := tool.Restore(context.Background(), f, []byte(input))
		var failed *RestoreError
		if !errors.As(err, &failed) {
			t.Fatalf("got %v, want a RestoreError", err)
		}
		if failed.Line != 3 || !strings.Contains(err.Error(), "--dport 99999") || kernel.IsMissing(err) {
			t.Errorf("error doesn't quote line 3: %v", err)
		}
	})
}

func TestMissing(t *testing.T) {
	each(t, func(t *testing.T, tool *Tool, f Family) {
		input := "*nat\n:KUBE-A - [0:0]\n-A KUBE-A -m nosuchmatch -j ACCEPT\nCOMMIT\n"
		err := tool.Restore(context.Background(), f, []byte(input))
		if !kernel.IsMissing(err) || !strings.Contains(err.Error(), "lacks the iptables match nosuchmatch") {
			t.Errorf("got %v, want a MissingError for the match", err)
		}
	})
	t.Run("program", func(t *testing.T) {
		tool := &Tool{variant: NFT}
		if err := tool.Restore(context.Background(), IPv6, nil); !kernel.IsMissing(err) {
			t.Errorf("got %v, want a MissingError for the program", err)
		}
	})
	for words, want := range map[string]string{
		"iptables-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)":                  "CAP_NET_ADMIN",
		"Warning: Extension recent revision 0 not supported, missing kernel module?\niptables-restore: line 4 failed":                     "the netfilter extension recent",
		"iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)":                  "the iptables table nat (kernel modules ip_tables, iptable_nat)",
		"iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument\nProtocol not supported":       "nf_tables",
		"iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Invalid argument): rule in chain KUBE-A":                  "",
		"Another app is currently holding the xtables lock; waiting (1s) for it to exit...\niptables-restore: line 4 failed, as expected": "",
	} {
		if got := (&Tool{variant: NFT}).missing(words); got != want {
			t.Errorf("%q is understood as lacking %q, want %q", words, got, want)
		}
	}
}

// TestNoProgram: where no iptables is installed and none has left chains of Services,
// nothing can be left over; where chains are left, nobody can remove them.
func TestNoProgram(t *testing.T) {
	ctx := context.Background()
	none := func(t *testing.T) error {
		searched := directories
		directories = nil
		t.Setenv("PATH", t.TempDir())
		defer func() { directories = searched }()
		_, err := Find(ctx, "")
		return err
	}
	t.Run("no chains", func(t *testing.T) {
		inNamespace(t)
		if err := none(t); !kernel.IsMissing(err) || kernel.IsNotPermitted(err) {
			t.Errorf("got %v, want that nothing can be left", err)
		}
	})
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			inNamespace(t)
			if err := open(t, v).Restore(ctx, IPv4, []byte("*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n")); err != nil {
				t.Fatal(err)
			}
			if err := none(t); !kernel.IsNotPermitted(err) {
				t.Errorf("got %v, want that this can't be looked at", err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	ctx := context.Background()
	for _, v := range Variants() {
		for name, input := range map[string]string{
			"hint":   "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n",
			"chains": "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n",
			"rules":  "*filter\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n",
		} {
			t.Run(string(v)+"/"+name, func(t *testing.T) {
				inNamespace(t)
				if err := open(t, v).Restore(ctx, IPv4, []byte(input)); err != nil {
					t.Fatal(err)
				}
				tool, err := Find(ctx, "")
				if err != nil {
					t.Fatal(err)
				}
				if tool.Variant() != v {
					t.Errorf("found %s, want %s", tool.Variant(), v)
				}
			})
		}
		tool, err := Find(ctx, string(v))
		if err != nil || tool.Variant() != v {
			t.Errorf("asked for %s: got %v, %v", v, tool, err)
		}
	}
	if _, err := Find(ctx, "ebtables"); err == nil || !strings.Contains(err.Error(), "nft or legacy") {
		t.Errorf("asked for ebtables: got %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"-A KUBE-A -j RETURN\n":            "outside any table",
		"*nat\n-A KUBE-A -j RETURN\n":      "which wasn't declared",
		"*nat\n:KUBE-A\n":                  "no chain and policy",
		"*nat\n:KUBE-A - [0:0]\nnonsense ": "neither a chain nor a rule",
		"*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\n-A A -j RETURN\nCOMMIT\n": `"A", which wasn't declared or was over`,
		"*nat\n:A - [0:0]\n": "table nat doesn't end",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parse %q: got %v, want an error with %q", text, err, want)
		}
	}
	text := "# comment\n*nat\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n[3:180] -A C -j A\n-A C -p tcp -j B\n-A A -j RETURN\nCOMMIT\n*filter\n:INPUT DROP [1:2]\nCOMMIT"
	got, err := parse(text)
	want := "nat C - [-j A -p tcp -j B]; nat A - [-j RETURN]; nat B - []; filter INPUT DROP []; "
	if err != nil || got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}

// parse has the parser read a text that comes in small pieces, and writes down what
// it makes of it.
func parse(text string) (chains string, err error) {
	p := parser{visit: func(table string, c *Chain) {
		chains += fmt.Sprint(table, " ", c.Name, " ", c.Policy, " ", c.Rules, "; ")
	}}
	w := lineWriter{take: p.line}
	for piece := range slices.Chunk([]byte(text), 7) {
		if _, err := w.Write(piece); err != nil {
			return "", err
		}
	}
	w.end()
	return chains, p.end()
}
