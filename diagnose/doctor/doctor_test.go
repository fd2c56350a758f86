package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/tools/txtar"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden reports")

// TestReports examines the cases of testdata. Each archive holds manifests that
// all its cases share; a case is a file "case NAME" whose lines say what is
// different: "target T", "from S", "node N", "host NAME VALUE", "chain FAMILY TABLE NAME
// HOOK drops|accepts RULES [legacy]", "connect ADDRESS RESULT", "name NAME
// ADDRESS...", "from-pod FROM TO RESULT", "large ADDRESS RESULT", "resolver SERVER
// SEARCH...", "flow PROTO CLIENT FRONTEND BACKEND", "agent NODE silent|waiting|away|leftout|ahead VALUE", "kernel NODE MODE
// [DIFFERENCE]". The file "report NAME" is what must come out.
func TestReports(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects := readObjects(t, archive)
		changed := false
		for i, f := range archive.Files {
			name, isCase := strings.CutPrefix(f.Name, "case ")
			if !isCase {
				continue
			}
			t.Run(name, func(t *testing.T) {
				got := report(t, objects, string(f.Data))
				if *update {
					archive.Files[i+1].Data, changed = got, true
				}
				if !bytes.Equal(got, archive.Files[i+1].Data) {
					t.Errorf("got:\n%s\nwant:\n%s", got, archive.Files[i+1].Data)
				}
			})
		}
		if changed {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func readObjects(t *testing.T, a *txtar.Archive) *explain.Objects {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, a.Files[0].Data, 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return &explain.Objects{Services: set.Services, Slices: set.Slices, Pods: set.Pods, Nodes: set.Nodes}
}

// fakeProber answers as a case says; what it doesn't mention is well.
type fakeProber struct {
	connect map[string]string
	at      map[string]netip.AddrPort
	names   map[string][]netip.Addr
	from    map[string]string   // by "FROM TO"
	large   map[string]string   // by address
	pod     netip.Addr          // that can be entered
	deaf    map[netip.Addr]bool // pods that get no answer from DNS
}

func (p fakeProber) ConnectFrom(_ context.Context, from netip.Addr, to netip.AddrPort) string {
	if result, ok := p.from[from.String()+" "+to.String()]; ok {
		return result
	}
	return "ok"
}

func (p fakeProber) Echo(_ context.Context, from, to netip.Addr, full bool) string {
	if from.IsValid() && from != p.pod {
		return ""
	}
	if result, ok := p.large[to.String()]; ok && full {
		return result
	}
	return "ok"
}

func (p fakeProber) Connect(_ context.Context, to netip.AddrPort) string {
	if result, ok := p.connect[to.String()]; ok {
		return result
	}
	return "ok"
}

func (p fakeProber) AtLoopback(to netip.AddrPort) netip.AddrPort { return p.at[to.String()] }

func (p fakeProber) Resolvers(netip.Addr) []Resolver { return nil }

func (p fakeProber) Lookup(_ context.Context, from netip.Addr, server netip.AddrPort, _, name string) ([]netip.Addr, error) {
	if from.IsValid() && from != p.pod {
		return nil, ErrNotThere
	}
	if p.deaf[from] {
		return nil, errors.New("i/o timeout")
	}
	if addrs, ok := p.names[name]; ok {
		return addrs, nil
	}
	return nil, errors.New("no such host")
}

func report(t *testing.T, objects *explain.Objects, lines string) []byte {
	t.Helper()
	healthy := func() *Host {
		return &Host{Sysctls: map[string]string{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}}
	}
	e := &Evidence{Domain: "cluster.local", Nodes: []Node{{Host: healthy()}}}
	on := &e.Nodes[0] // the node that lines are about
	p := fakeProber{connect: map[string]string{}, at: map[string]netip.AddrPort{}, names: map[string][]netip.Addr{}, from: map[string]string{}, large: map[string]string{}, deaf: map[netip.Addr]bool{}}
	var target, from, node string
	var policies []*networkingv1.NetworkPolicy
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		switch words[0] {
		case "target":
			target = words[1]
		case "from":
			from = words[1]
		case "node":
			node = words[1]
		case "hostnode":
			on.Name = words[1]
		case "also": // NODE, that is looked at too, and that the lines after it are about
			e.Nodes = append(e.Nodes, Node{Name: words[1], Host: healthy()})
			on = &e.Nodes[len(e.Nodes)-1]
		case "enter": // POD-ADDRESS [deaf]
			p.pod = netip.MustParseAddr(words[1])
			p.deaf[p.pod] = len(words) > 2
		case "announced": // ADDRESS NODE BY|- [WHY]
			a := Announced{Address: netip.MustParseAddr(words[1]), Node: words[2], WhyNot: strings.Join(words[4:], " ")}
			if words[3] != "-" {
				a.By = words[3]
			}
			e.Announced = append(e.Announced, a)
		case "scaled": // KIND NAME KEY=VALUE
			key, value, _ := strings.Cut(words[3], "=")
			e.Scaled = append(e.Scaled, Workload{Kind: words[1], Name: words[2], Labels: map[string]string{key: value}})
		case "nopods":
			with := *objects
			with.Pods, with.NoPods, objects = nil, "pods is forbidden", &with
		case "host":
			on.Host.Sysctls[words[1]] = words[2]
		case "dropped": // FOR-WANT-OF-ROOM CLASHED
			_, err := fmt.Sscan(words[1]+" "+words[2], &on.Host.Full, &on.Host.Clashed)
			if err != nil {
				t.Fatal(err)
			}
		case "chain":
			rules := 0
			if words[6] != "0" {
				rules = 1
			}
			on.Host.Chains = append(on.Host.Chains, Chain{Family: words[1], Table: words[2], Name: words[3],
				Hook: words[4], Drops: words[5] == "drops", Rules: rules, Legacy: len(words) > 7 && words[7] == "legacy", DropsNames: len(words) > 7 && words[7] == "names"})
		case "connect":
			p.connect[words[1]] = strings.Join(words[2:], " ")
		case "loopback": // ENDPOINT
			to := netip.MustParseAddrPort(words[1])
			p.connect[words[1]], p.at[words[1]] = "refused", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), to.Port())
		case "policy": // PORT [from], of all pods
			policies = append(policies, policy(words[1], len(words) > 2))
		case "agent": // NODE FIELD VALUE
			a := Agent{Node: words[1]}
			value := strings.Join(words[3:], " ")
			var err error
			switch words[2] {
			case "kubeproxynames":
				a.KubeProxyNames = true
			case "silent":
				a.Err = value
			case "waiting":
				a.Waiting, err = time.ParseDuration(value)
			case "away":
				a.Away, err = time.ParseDuration(value)
			case "leftout":
				a.LeftOut = []string{value}
			case "ahead":
				a.Ahead = []string{value}
			}
			if err != nil {
				t.Fatal(err)
			}
			e.Agents = append(e.Agents, a)
		case "kernel": // NODE MODE DIFFERENCE
			k := Kernel{Node: words[1], Mode: words[2], Objects: 5}
			if len(words) > 3 {
				k.Differences = []string{strings.Join(words[3:], " ")}
			}
			e.Kernel = append(e.Kernel, k)
		case "from-pod": // FROM TO RESULT
			p.from[words[1]+" "+words[2]] = strings.Join(words[3:], " ")
		case "large": // ADDRESS RESULT
			p.large[words[1]] = strings.Join(words[2:], " ")
		case "resolver": // SERVER [SEARCH]...
			e.Client = &Client{Resolvers: []Resolver{{Servers: words[1:2], Search: words[2:]}}}
		case "flow": // PROTO CLIENT FRONTEND BACKEND
			e.Flows = append(e.Flows, Flow{"n1", words[1], netip.MustParseAddrPort(words[2]), netip.MustParseAddrPort(words[3]), netip.MustParseAddrPort(words[4])})
			e.Agents = append(e.Agents, Agent{Node: "n1"})
		case "name":
			for _, a := range words[2:] {
				p.names[words[1]] = append(p.names[words[1]], netip.MustParseAddr(a))
			}
		default:
			t.Fatalf("a case can't say %q", line)
		}
	}
	for i := range e.Nodes {
		e.Nodes[i].Probe = p
	}
	if target != "" {
		var err error
		if e.Question, err = explain.ParseQuestion(target, from, "default"); err != nil {
			t.Fatal(err)
		}
		e.Question.Node = node
		with := *objects
		with.Policies, objects = policies, &with
		e.Objects = objects
		e.Service = objects.Of(e.Question.Target)
		config := compile.Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
		if e.Report, err = explain.FromObjects(e.Question, objects, config, nil); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	r := Examine(t.Context(), e)
	for _, f := range slices.Concat(findings(r)...) {
		if f.Grade > cause(f.Code).Surest {
			t.Errorf("%s is %s, and the catalogue says that it is at the surest %s", f.Code, f.Grade, cause(f.Code).Surest)
		}
	}
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// policy lets clients in at one port, all of them or only some.
func policy(port string, some bool) *networkingv1.NetworkPolicy {
	number := intstr.Parse(port)
	rule := networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: &number}}}
	if some {
		rule.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "at-" + port},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{rule}},
	}
}

func findings(r *Report) (lists [][]Finding) {
	for _, result := range r.Results {
		lists = append(lists, result.Findings)
	}
	return lists
}

// TestNoXDP: where XDP was asked for and can't be had is said, with the reason.
func TestNoXDP(t *testing.T) {
	found := checkAgents(t.Context(), &Evidence{Agents: []Agent{{Node: "one"}, {Node: "two", NoXDP: []string{"eth0: another XDP program is there"}}}})
	if len(found) != 1 || found[0].Code != NoXDP || !strings.Contains(found[0].What, "two at eth0: another") {
		t.Errorf("found %+v", found)
	}
}

// TestUplinkBridged: a bridge at a node's uplink is said of that node.
func TestUplinkBridged(t *testing.T) {
	e := &Evidence{Nodes: []Node{{Name: "one", Host: &Host{}}, {Name: "two", Host: &Host{UplinkBridges: []string{"br0"}}}}}
	found := checkForwarding(t.Context(), e)
	if len(found) != 1 || found[0].Code != UplinkBridged || !strings.Contains(found[0].What, "br0") || !strings.Contains(found[0].What, "two") {
		t.Errorf("found %+v", found)
	}
}

// TestCatalogue: codes are unique and in order, and every one can be explained.
func TestCatalogue(t *testing.T) {
	last := Code(0)
	for _, c := range Catalogue() {
		if c.Code <= last || c.Title == "" || c.Meaning == "" || c.Fix == "" {
			t.Errorf("%s: out of order or incomplete", c.Code)
		}
		last = c.Code
		if text, err := Explain(strings.ToLower(c.Code.String())); err != nil || !strings.Contains(text, c.Fix) {
			t.Errorf("%s: %v", c.Code, err)
		}
		var again Code
		if text, err := json.Marshal(c.Code); err != nil || json.Unmarshal(text, &again) != nil || again != c.Code {
			t.Errorf("%s is %s in JSON, and read as %s: %v", c.Code, text, again, err)
		}
	}
	for _, text := range []string{"FW999", "101", ""} {
		if _, err := Explain(text); err == nil {
			t.Errorf("%q is explained", text)
		}
	}
}

// TestCatalogueInDocs: docs/how-to/diagnosis.md has the table of codes, which -update writes, and the pages
// that the catalogue names are there.
func TestCatalogueInDocs(t *testing.T) {
	pages := docPages(t)
	var table strings.Builder
	table.WriteString("| code | cause | at the surest | more |\n|---|---|---|---|\n")
	for _, c := range Catalogue() {
		name, section, _ := strings.Cut(c.Page, "#")
		if p, ok := pages[name]; !ok || section != "" && !slices.Contains(sections(p.text), section) {
			t.Errorf("%s: docs have no %s", c.Code, c.Page)
		}
		link, err := filepath.Rel(filepath.Dir(pages["diagnosis.md"].path), pages[name].path)
		if err != nil {
			t.Fatal(err)
		}
		if section != "" {
			link += "#" + section
		}
		fmt.Fprintf(&table, "| %s | %s | %s | [%s](%s) |\n", c.Code, c.Title, c.Surest, strings.TrimSuffix(name, ".md"), link)
	}
	const begin = "| code | cause |"
	path, page := pages["diagnosis.md"].path, pages["diagnosis.md"].text
	at := strings.Index(page, begin)
	if at < 0 {
		t.Fatalf("docs/how-to/diagnosis.md has no table that begins with %q", begin)
	}
	end := at + strings.Index(page[at:], "\n\n") + 1
	if page[at:end] == table.String() {
		return
	}
	if !*update {
		t.Fatal("docs/how-to/diagnosis.md has another table of codes than the catalogue: go test ./diagnose/doctor -update")
	}
	if err := os.WriteFile(path, []byte(page[:at]+table.String()+page[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

type docPage struct{ path, text string }

// docPages are the pages of docs, by name.
func docPages(t *testing.T) map[string]docPage {
	t.Helper()
	pages := map[string]docPage{}
	err := filepath.WalkDir("../../docs", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[filepath.Base(path)] = docPage{path, string(text)}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// sections are the names that links have for the headings of a page.
func sections(page string) []string {
	var list []string
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(heading))
			list = append(list, name)
		}
	}
	return list
}
