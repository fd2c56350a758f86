package ahead

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// frontends are those that rules are held against.
var frontends = map[string]*model.Frontend{
	"vip":  {Key: model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}},
	"vip6": {Key: model.Key{Addr: netip.MustParseAddr("fd00:96::1"), Port: 80, Proto: model.TCP}},
	"dns":  {Key: model.Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 53, Proto: model.UDP}},
	"node": {Key: model.Key{Addr: netip.IPv4Unspecified(), Port: 30080, Proto: model.TCP}},
}

var settings = &model.Settings{NodeAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}

// taken names the frontends that rules keep packets from, and what they do.
func taken(list []Rule) (names []string) {
	for _, r := range list {
		for name, f := range frontends {
			if r.Takes(f, settings) {
				names = append(names, name+" "+string(r.Effect))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cases are rules as iptables takes them, and whom they concern. The table nat has the rule
// that leads to the Services' chain behind them.
var cases = []struct {
	rules string
	want  []string
}{
	{"-t raw -A PREROUTING -p tcp --dport 80 -j DROP", []string{"vip drops"}},
	{"-t raw -A PREROUTING -p tcp -m multiport --dports 22,80:90,30080 -j DROP", []string{"node drops", "vip drops"}},
	{"-t raw -A PREROUTING -d 10.96.0.0/16 -j NOTRACK", []string{"dns leaves untracked", "vip leaves untracked"}},
	{"-t raw -A PREROUTING -p udp --dport 54 -j DROP\n-t raw -A PREROUTING -s 198.51.100.0/24 -j DROP\n-t raw -A PREROUTING -i lo -j NOTRACK", nil},
	{"-t mangle -A OUTPUT -d 192.0.2.1 -p tcp --dport 30000:32767 -j DROP", []string{"node drops"}},
	{"-t mangle -N theirs\n-t mangle -A PREROUTING -p tcp -j theirs\n-t mangle -A theirs -d 10.96.0.1/32 -m comment --comment \"not -j ACCEPT\" -j DROP", []string{"vip drops"}},
	// As Docker has it: what is published at the machine's own addresses.
	{"-t nat -N DOCKER\n-t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n-t nat -A DOCKER -p tcp --dport 30080 -j DNAT --to-destination 172.17.0.2:80", []string{"node leads elsewhere"}},
	{"-t nat -A OUTPUT ! -d 10.96.0.1/32 -p tcp --dport 443 -j REDIRECT", nil},
	{"-t nat -A PREROUTING -d 10.96.0.0/16 -j ACCEPT", []string{"dns keeps from the Services' chains", "vip keeps from the Services' chains"}},
	{"-t nat -N early\n-t nat -A early -p udp -d 10.96.0.10 --dport 53 -j ACCEPT\n-t nat -A early -p tcp --dport 80 -j RETURN\n-t nat -A PREROUTING -j early", []string{"dns keeps from the Services' chains"}},
	{"-t filter -A FORWARD -p tcp --dport 80 -j DROP", nil},
}

// afterwards is what the plane and others have behind the rules of cases.
const afterwards = "-t nat -N KUBE-SERVICES\n-t nat -A PREROUTING -j KUBE-SERVICES\n-t nat -A OUTPUT -j KUBE-SERVICES\n" +
	"-t nat -A KUBE-SERVICES -p tcp --dport 80 -j DNAT --to-destination 10.0.0.1\n-t nat -A PREROUTING -p udp --dport 53 -j DNAT --to-destination 10.0.0.2"

// TestRead holds rules of both variants of iptables against Services.
func TestRead(t *testing.T) {
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		for _, c := range cases {
			ns := netnstest.New(t)
			for line := range strings.SplitSeq(c.rules+"\n"+afterwards, "\n") {
				run(t, ns, append([]string{program}, words(line)...)...)
			}
			if got := read(t, ns); !slices.Equal(got, c.want) {
				t.Errorf("%s %s: %q, expected %q", program, c.rules, got, c.want)
			}
		}
	}
}

// TestReadNFTables does so with tables as nft makes them.
func TestReadNFTables(t *testing.T) {
	for rules, want := range map[string][]string{
		"tcp dport { 79-81, 443 } drop":                     {"vip drops", "vip6 drops"},
		"ip6 daddr fd00:96::/64 notrack":                    {"vip6 leaves untracked"},
		"ip daddr 10.96.0.10 udp dport 53 reject":           {"dns drops"},
		"fib saddr . iif oif missing drop":                  nil, // reverse paths, as firewalld has it
		"meta nfproto ipv4 drop":                            {"dns drops", "node drops", "vip drops"},
		"tcp dport 80 accept":                               nil, // of this chain only
		"iifname eth9 tcp dport >= 30000 counter drop":      {"node drops"},
		"ct state invalid drop":                             nil,
		"ip protocol udp th dport 53 ip saddr 1.2.3.4 drop": {"dns drops"},
	} {
		ns := netnstest.New(t)
		run(t, ns, "nft", "add table inet theirs; add chain inet theirs pre { type filter hook prerouting priority -300; }; "+
			"add chain inet theirs late { type filter hook forward priority 0; }; add rule inet theirs late drop; "+
			"add table inet fairway; add chain inet fairway raw { type filter hook prerouting priority -300; }; add rule inet fairway raw drop; add rule inet theirs pre "+rules)
		if got := read(t, ns); !slices.Equal(got, want) {
			t.Errorf("%s: %q, expected %q", rules, got, want)
		}
	}
}

// TestText says rules to people.
func TestText(t *testing.T) {
	list := legacyRules("ip", "raw", []byte("-A PREROUTING -s 198.51.100.0/24 -d 10.96.0.0/16 -p tcp -m multiport --dports 80,443:445 -j DROP"))
	const want = "table ip raw (iptables-legacy), chain PREROUTING drops some packets to 10.96.0.0/16 to port 80, 443-445"
	if len(list) != 1 || list[0].String() != want {
		t.Errorf("%v, expected %s", list, want)
	}
}

func words(line string) []string {
	before, comment, _ := strings.Cut(line, `"`)
	comment, after, _ := strings.Cut(comment, `"`)
	list := strings.Fields(before)
	if comment != "" {
		list = append(list, comment)
	}
	return append(list, strings.Fields(after)...)
}

func run(t *testing.T, ns *netns.NS, command ...string) {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out.String())
	}
}

func read(t *testing.T, ns *netns.NS) []string {
	t.Helper()
	var list []Rule
	if err := ns.Do(func() (err error) {
		list, err = Read(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return taken(list)
}

// TestChainsOfChains: of chains that lead to each other again and again only so many rules are
// looked at; all ways through these are a hundred million.
func TestChainsOfChains(t *testing.T) {
	var text strings.Builder
	for i := range deepest {
		from := "PREROUTING"
		if i > 0 {
			from = fmt.Sprint("c", i)
		}
		for range 10 {
			fmt.Fprintf(&text, "-A %s -s 198.51.100.0/24 -j c%d\n", from, i+1)
		}
	}
	fmt.Fprintf(&text, "-A c%d -p tcp --dport 80 -j DROP\n", deepest)
	if list := legacyRules("ip", "raw", []byte(text.String())); len(list) == 0 || len(list) > mostRules {
		t.Errorf("%d rules", len(list))
	}
	if list := legacyRules("ip", "raw", []byte("-A PREROUTING -s 198.51.100.1/32 -j DROP")); len(list) != 0 {
		t.Errorf("of a sender: %v", list)
	}
}
