package lab_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
)

// victim is a pod of node2, asked from the outside client in both families.
type victim struct {
	lab    string
	client kubernetes.Interface
	from   *place
	at     []string
}

func newVictim(t *testing.T, c lab.Config) *victim {
	t.Helper()
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.Open(topology.HostNamespace(c.Name, "client"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	v := &victim{lab: c.Name, client: client, from: &place{ns: ns}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"},
		Spec: corev1.PodSpec{NodeName: "node2", Containers: []corev1.Container{{
			Name: "c", Image: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, Protocol: corev1.ProtocolUDP}},
		}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is ready", func() bool { return v.ready(t) })
	for _, ip := range v.pod(t).Status.PodIPs {
		v.at = append(v.at, net.JoinHostPort(ip.IP, "80"))
	}
	return v
}

func (v *victim) pod(t *testing.T) *corev1.Pod {
	pod, err := v.client.CoreV1().Pods("default").Get(t.Context(), "victim", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func (v *victim) ready(t *testing.T) bool { return isTrue(v.pod(t).Status.Conditions, corev1.PodReady) }

func isTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (v *victim) nodeReady(t *testing.T) bool {
	node, err := v.client.CoreV1().Nodes().Get(t.Context(), "node2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// answers says whether the pod answers at both addresses within a time.
func (v *victim) answers(within time.Duration) bool {
	for _, at := range v.at {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		conn, err := v.from.dial(ctx, "tcp", at)
		cancel()
		if err != nil {
			return false
		}
		_, _, err = question(conn, within)
		if conn.Close() != nil || err != nil {
			return false
		}
	}
	return true
}

// answered counts the answers to many datagrams, sent at once.
func (v *victim) answered(t *testing.T, at string, many int) int {
	conn, err := v.from.dial(t.Context(), "udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := 0
	for range wait.Every(t.Context(), time.Millisecond) { // so that no buffer overflows
		if _, err := io.WriteString(conn, "who?\n"); err != nil {
			t.Fatal(err)
		}
		if sent++; sent == many {
			break
		}
	}
	n, lines := 0, bufio.NewReader(conn)
	for {
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			return n
		}
		n++
	}
}

// command runs a command line that must succeed.
func command(t *testing.T, args ...string) string {
	t.Helper()
	out, said, code := fairway(args...)
	if code != 0 {
		t.Fatalf("%v: exit status %d: %s", args, code, said)
	}
	return out
}

// TestBreakAndMend: pods and nodes fail as asked, in both families, and are as
// before when they are mended.
func TestBreakAndMend(t *testing.T) {
	c := config("faults")
	up(t, c)
	v := newVictim(t, c)
	for _, kind := range fault.Pods {
		t.Run("pod/"+string(kind), func(t *testing.T) {
			command(t, "lab", "break", "--name", c.Name, "victim", "--"+string(kind))
			if said := command(t, "lab", "status", "--name", c.Name); !strings.Contains(said, fmt.Sprintf("broken: pod default/victim, %s", kind)) {
				t.Errorf("status says nothing of it:\n%s", said)
			}
			v.suffers(t, kind)
			command(t, "lab", "mend", "--name", c.Name, "default/victim")
			eventually(t, "the pod is ready and answers", func() bool { return v.ready(t) && v.answers(waitTimeout) })
		})
	}
	for _, kind := range fault.Nodes {
		t.Run("node/"+string(kind), func(t *testing.T) {
			command(t, "lab", "break", "--name", c.Name, "node", "node2", "--"+string(kind))
			if v.answers(300 * time.Millisecond) {
				t.Error("a pod of the node answers")
			}
			if kind == fault.Power {
				eventually(t, "the node is not ready", func() bool { return !v.nodeReady(t) })
				if _, said, code := fairway("lab", "exec", "--name", c.Name, "node2", "--", "true"); code == 0 || !strings.Contains(said, "no power") {
					t.Errorf("a command runs on a node without power: exit status %d: %s", code, said)
				}
			}
			command(t, "lab", "mend", "--name", c.Name)
			eventually(t, "the node is ready, and the pod answers", func() bool { return v.nodeReady(t) && v.answers(time.Second) })
		})
	}
	if v.pod(t).Status.ContainerStatuses[0].RestartCount == 0 {
		t.Error("without power, the container was not started again")
	}
	t.Run("refusals", func(t *testing.T) { refusedFaults(t, c.Name) })
	command(t, "lab", "break", "--name", c.Name, "node", "node1", "--power") // and down must work
}

// suffers checks that the pod has what it was broken with.
func (v *victim) suffers(t *testing.T, kind fault.Kind) {
	switch kind {
	case fault.Unready:
		eventually(t, "the pod is not ready", func() bool { return !v.ready(t) })
		if !v.answers(waitTimeout) {
			t.Error("the pod doesn't answer")
		}
	case fault.Silent:
		if v.answers(300 * time.Millisecond) {
			t.Error("the pod answers")
		}
	case fault.Slow:
		began := time.Now()
		if !v.answers(waitTimeout) || time.Since(began) < fault.Delay {
			t.Errorf("the answers took %v", time.Since(began))
		}
	case fault.Lossy:
		for _, at := range v.at {
			if n := v.answered(t, at, 300); n < 100 || n > 280 {
				t.Errorf("%d of 300 datagrams to %s were answered", n, at)
			}
		}
	}
}

func refusedFaults(t *testing.T, name string) {
	for _, r := range []struct{ args, want string }{
		{"victim", "--unready, --silent, --slow or --lossy"},
		{"victim --slow --lossy", "none of the others can be"},
		{"nobody --slow", "default/nobody"},
		{"node node9 --power", `no node "node9"`},
	} {
		args := append([]string{"lab", "break", "--name", name}, strings.Fields(r.args)...)
		if _, said, code := fairway(args...); code != 1 || !strings.Contains(said, r.want) {
			t.Errorf("break %s: exit status %d: %s", r.args, code, said)
		}
	}
}
