//go:build !agentonly

package cmd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestFirstFiveMinutes does what docs/how-to/machines.md tells people with three
// machines to do first, word for word, and then kills a process and unplugs a
// machine. Once Fairway has noticed, no answer is wrong. Meanwhile a process of
// m3 is published by its unit, and one of two hooks is killed.
func TestFirstFiveMinutes(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) {
		t.Parallel()
		firstFiveMinutes(t, newNetwork(t), strings.NewReplacer(), "10.77.0.100").andThen(t)
	})
	t.Run("IPv6", func(t *testing.T) {
		t.Parallel()
		firstFiveMinutes(t, newNetwork(t), bySix, "fd00:77::100").andThen(t)
	})
}

// bySix has the document's commands use the machines' IPv6 addresses.
var bySix = strings.NewReplacer(
	"https://10.77.0.11:", "https://[fd00:77::11]:", "http://10.77.0.100/", "-g http://[fd00:77::100]/",
	"10.77.0.12:8000", "[fd00:77::12]:8000", "10.77.0.13:8000", "[fd00:77::13]:8000",
	"--bind-address 10.77.0.11", "--bind-address fd00:77::11",
	"10.77.0.100-10.77.0.110", "fd00:77::100-fd00:77::110")

// TestMachinesOfOneFamily: the same commands work on machines that have one family alone.
func TestMachinesOfOneFamily(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) {
		t.Parallel()
		firstFiveMinutes(t, newNetworkOf(t, "IPv4"), strings.NewReplacer(), "10.77.0.100")
	})
	t.Run("IPv6", func(t *testing.T) {
		t.Parallel()
		firstFiveMinutes(t, newNetworkOf(t, "IPv6"), bySix, "fd00:77::100")
	})
}

// fiveMinutes are the lines of the document, each with where it belongs.
func fiveMinutes(t *testing.T) [][2]string {
	t.Helper()
	text, err := os.ReadFile("../docs/how-to/machines.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "## The first five minutes\n\n```\n")
	block, _, found := strings.Cut(text2, "```")
	if !found {
		t.Fatal("docs/how-to/machines.md has no first five minutes")
	}
	var lines [][2]string
	for line := range strings.Lines(block) {
		command, where, _ := strings.Cut(line, "#")
		lines = append(lines, [2]string{strings.TrimSpace(command), strings.TrimSpace(where)})
	}
	return lines
}

// beginning is what the document's commands have made.
type beginning struct {
	*joined
	kill      map[string]func() // of the processes of m2 and m3
	terminate func()            // of m3's agent
}

func firstFiveMinutes(t *testing.T, n *network, family *strings.Replacer, address string) *beginning {
	c := &joined{network: n, address: netip.MustParseAddr(address)}
	kill := map[string]func(){}
	for _, name := range []string{"m2", "m3"} {
		_, kill[name] = n.hosts[name].start(asProcess + "=" + name + " exec " + os.Args[0])
	}
	var terminate func()
	did := map[string]int{}
	var seen strings.Builder
	for _, line := range fiveMinutes(t) {
		command, where := family.Replace(line[0]), line[1]
		began, printed := time.Now(), ""
		for _, word := range strings.Fields(command) {
			did[word]++
		}
		switch {
		case strings.Contains(command, " up "):
			c.up(command)
			printed = "on other machines: " + c.joinLine + "\n"
		case strings.Contains(command, " join "):
			_, documented, _ := strings.Cut(command, " | ")
			_, said, _ := strings.Cut(c.joinLine, " | ")
			if documented == "" || documented != said {
				t.Fatalf("the document says %q, the server %q", command, c.joinLine)
			}
			n.hosts["m2"].start(c.joinLine)
			_, terminate = n.hosts["m3"].startEnding(c.joinLine + publishing)
		case strings.HasPrefix(where, "on each machine"):
			for _, name := range []string{"m1", "m2", "m3"} {
				n.hosts[name].run(command)
			}
		case strings.HasPrefix(where, "from any laptop"):
			c.settles("both answer", "m2", "m3")
			began = time.Now()
			printed = n.hosts["laptop"].run(command)
			if got := strings.TrimSpace(printed); got != "m2" && got != "m3" {
				t.Errorf("%s prints %q", command, got)
			}
		case strings.HasPrefix(where, "on the first"):
			printed = n.hosts["m1"].run(command)
			if !strings.Contains(printed, address) {
				t.Errorf("%s prints no %s:\n%s", command, address, printed)
			}
		default:
			t.Fatalf("where is %q to be run? The document says %q", command, where)
		}
		fmt.Fprintf(&seen, "$ %s    # %s\n%s# %d ms\n", command, where, printed, time.Since(began).Milliseconds())
	}
	t.Logf("the first five minutes:\n%s", seen.String())
	if netip.MustParseAddr(address).Is4() && n.only == "" {
		record(t, "machines", seen.String())
	}
	for _, command := range []string{"install", "up", "join", "expose", "curl", "status"} {
		if did[command] == 0 {
			t.Errorf("the document has no %s", command)
		}
	}
	return &beginning{c, kill, terminate}
}

// andThen kills a process and unplugs a machine.
func (b *beginning) andThen(t *testing.T) {
	c, n, kill, terminate := b.joined, b.network, b.kill, b.terminate
	c.agentsAnswer()
	hooks := c.startHooks()
	kill["m2"]()
	c.settles("the process of m2 was killed", "m3")
	status := n.hosts["m1"].run("fairway status")
	if !strings.Contains(status, "connection refused, seen from m") || !strings.Contains(status, "1 of 2") {
		t.Errorf("status says nothing of the killed process:\n%s", status)
	}
	n.hosts["m2"].start(asProcess + "=m2 exec " + os.Args[0])
	c.settles("the process of m2 is back", "m2", "m3")

	c.publishUnit()
	hooks.killLeader()

	unplugged, stays := c.announcer(), "m2"
	if unplugged == "m2" {
		stays = "m3"
	} else {
		unplugged = "m3" // where m1 announces, any of the others will do
	}
	n.plug(unplugged, false)
	c.settles(unplugged+" was unplugged", stays)
	// The others needn't wait for its Lease.
	eventually(t, "the machines that are left agree that "+unplugged+" is gone", func() bool {
		return strings.Contains(c.serverOut.String(), "their peers on the link agree") && strings.Contains(c.serverOut.String(), unplugged)
	})
	eventually(t, "status names the machine", func() bool {
		status = n.hosts["m1"].run("fairway status")
		return strings.Contains(status, "node "+unplugged+" is not ready")
	})
	n.plug(unplugged, true)
	c.settles(unplugged+" is plugged in again", "m2", "m3")
	c.endsDrained(terminate)
	hooks.tookOver()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if is() {
			break
		}
		if late {
			t.Fatalf("never: %s", what)
		}
	}
}

// joined is what the three machines have become.
type joined struct {
	*network
	address  netip.Addr // of the Service, for those outside
	joinLine string
	// serverOut is what the server and its agent print.
	serverOut *output
	client    kubernetes.Interface
}

// up starts the server, waits until it says how to join, and makes a client.
func (c *joined) up(command string) {
	c.t.Helper()
	m := c.hosts["m1"]
	out, _ := m.start(command)
	c.serverOut = out
	eventually(c.t, "the server says how others join", func() bool { return strings.Contains(out.String(), "to join other machines: fairway token create") })
	_, line, _ := strings.Cut(m.run("fairway token create"), "on other machines: ")
	c.joinLine, _, _ = strings.Cut(line, "\n")
	config, err := clientcmd.BuildConfigFromFlags("", m.dir+"/lib/admin.kubeconfig")
	c.must(err)
	config.Dial = m.dial
	c.client, err = kubernetes.NewForConfig(config)
	c.must(err)
}

// inARow is how many right answers in a row say that Fairway has noticed: with
// two endpoints chosen at random, fewer than one wrong choice in 2^30 is missed.
const inARow = 30

// settles waits until only the machines of want answer, and all of them. From
// then on no answer may be wrong.
func (c *joined) settles(what string, want ...string) {
	c.t.Helper()
	began, wrong := time.Now(), ""
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s: the last wrong answer: %s; %s", what, wrong, c.state())
		}
	}()
	right := func() bool { wrong = c.right(want, 2*time.Second); return wrong == "" }
	eventually(c.t, what+": only "+strings.Join(want, " and ")+" answer", right)
	c.t.Logf("%s: right answers after %s", what, time.Since(began).Round(10*time.Millisecond))
	// A machine that is so busy that it misses checks changes the state again;
	// then the answers say nothing.
	for deadline := time.Now().Add(waitTimeout); ; {
		before := c.state()
		if wrong = c.right(want, waitTimeout); wrong == "" {
			return
		}
		if c.state() == before || time.Now().After(deadline) {
			c.t.Fatalf("%s: %s, although nothing changed: %s", what, wrong, before)
		}
		eventually(c.t, what+": right again", right)
	}
}

// right asks from the laptop, and says what was wrong with the first wrong answer.
func (c *joined) right(want []string, timeout time.Duration) string {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.hosts["laptop"].dial}}
	seen := map[string]bool{}
	for i := range 3 * inARow {
		if i >= inARow && len(seen) == len(want) {
			return ""
		}
		response, err := client.Get("http://" + netip.AddrPortFrom(c.address, 80).String() + "/")
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		name := strings.TrimSpace(string(body))
		if err != nil || !slices.Contains(want, name) {
			return fmt.Sprintf("answer %q, %v", name, err)
		}
		seen[name] = true
	}
	return fmt.Sprintf("only %v answer", seen)
}

// state is what the API says of the Service's endpoints and of the nodes.
func (c *joined) state() string {
	ctx, cancel := context.WithTimeout(c.t.Context(), waitTimeout)
	defer cancel()
	var text []string
	list, err := c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{})
	c.must(err)
	for _, s := range list.Items {
		text = append(text, s.Name+" "+s.ResourceVersion)
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	c.must(err)
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				text = append(text, fmt.Sprint(node.Name, " ", condition.Status, " ", condition.LastTransitionTime.UTC()))
			}
		}
	}
	return strings.Join(text, ", ")
}

// announcer is the machine that the laptop reaches the address at.
func (c *joined) announcer() string {
	c.t.Helper()
	name, err := c.owner("laptop", c.address)
	c.must(err)
	return name
}
