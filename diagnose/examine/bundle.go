package examine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/diagnose/doctor"
)

// Of an agent's log the last lines are taken, and no more than so many bytes.
const (
	logLines = 2000
	logBytes = 1 << 20
)

// atOnce is how many nodes are asked at a time.
const atOnce = 8

// Bundle gathers what a bug report takes: of all Services, or of a namespace's if it isn't "".
// What can't be had is named in the bundle; only without any objects there is none.
func (x *Examiner) Bundle(ctx context.Context, namespace, version string) (*bundle.Contents, error) {
	c := &bundle.Contents{About: bundle.About{Version: version, Time: time.Now().UTC().Truncate(time.Second)}}
	var err error
	if c.Objects, err = x.Source.ReadEvery(ctx, namespace); err != nil {
		return nil, err
	}
	within := scope(namespace)
	within.objects(c.Objects)
	if c.Survey, err = x.All(ctx, namespace); err != nil {
		c.About.Missing = append(c.About.Missing, "doctor: "+err.Error())
	}
	agents := x.Source.Agents(ctx, x.Node)
	c.Nodes = make([]bundle.Node, len(agents))
	var asking sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, a := range agents {
		asking.Go(func() {
			places <- struct{}{}
			c.Nodes[i] = askNode(ctx, a, within)
			<-places
		})
	}
	asking.Wait()
	if c.Objects.NoAPI != "" {
		c.About.Missing = append(c.About.Missing, "the API: "+c.Objects.NoAPI)
	} else if err := x.addLogs(ctx, c); err != nil {
		c.About.Missing = append(c.About.Missing, "agents' logs: "+err.Error())
	}
	for i, a := range agents { // of processes of this machine
		if n := &c.Nodes[i]; n.Log == "" && n.Status != nil && a.IsLocal() {
			if n.Log, err = logHere(ctx, n.Status.PID); err != nil {
				n.Problems = append(n.Problems, "log: "+err.Error())
			}
		}
	}
	for i := range c.Nodes {
		c.Nodes[i].Log = within.log(c.Nodes[i].Log)
		if c.Nodes[i].Name == "" {
			c.Nodes[i].Name = fmt.Sprintf("unknown-%d", i)
		}
	}
	return c, nil
}

// askNode asks the agent of a node for all that it tells of a namespace.
func askNode(ctx context.Context, a agentlink.Found, within scope) bundle.Node {
	n := bundle.Node{Name: a.Name()}
	problem := func(what string, err error) bool {
		if err != nil {
			n.Problems = append(n.Problems, what+": "+err.Error())
		}
		return err == nil
	}
	if !problem("the agent doesn't answer", a.Err) {
		return n
	}
	n.Status = &a.Status
	var err error
	if n.Changes, err = a.Changes(ctx); err != nil {
		problem("changes", err)
	}
	if table, err := a.Table(ctx); problem("what is in force", err) {
		n.Table = within.table(table)
	}
	if host, err := a.Host(ctx); problem("facts of the machine", err) {
		n.Host = host
	}
	if kernel, err := within.kernel(ctx, a, n.Table); problem("what the kernel holds", err) {
		n.Kernel = kernel
	}
	within.node(&n)
	return n
}

// addLogs adds the last lines of agents that run in pods.
func (x *Examiner) addLogs(ctx context.Context, c *bundle.Contents) error {
	client, err := x.Source.Client()
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fairway,app.kubernetes.io/component=proxy"})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		at := slices.IndexFunc(c.Nodes, func(n bundle.Node) bool { return n.Name == p.Spec.NodeName })
		if at < 0 {
			c.Nodes = append(c.Nodes, bundle.Node{Name: p.Spec.NodeName, Problems: []string{"the agent wasn't asked"}})
			at = len(c.Nodes) - 1
		}
		text, err := logOf(ctx, client, p)
		if err != nil {
			c.Nodes[at].Problems = append(c.Nodes[at].Problems, "log: "+err.Error())
			continue
		}
		c.Nodes[at].Log = text
	}
	return nil
}

func logOf(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) (string, error) {
	lines, bytes := int64(logLines), int64(logBytes)
	stream, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: "fairway", TailLines: &lines, LimitBytes: &bytes}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(stream, logBytes))
	return string(text), err
}

// logHere is the end of what a process of this machine wrote to its standard error: a file, or else
// the journal.
func logHere(ctx context.Context, pid int) (string, error) {
	text, err := endOf(fmt.Sprintf("/proc/%d/fd/2", pid))
	if errors.Is(err, errNoFile) {
		text, err = exec.CommandContext(ctx, "journalctl", "--quiet", "--no-pager", fmt.Sprint("--lines=", logLines), fmt.Sprint("_PID=", pid)).Output()
	}
	if err != nil {
		return "", err
	}
	if len(text) > logBytes {
		text = text[len(text)-logBytes:]
	}
	return string(text), nil
}

// errNoFile says that something that could be a file is none.
var errNoFile = errors.New("no regular file")

// endOf reads the last bytes of a regular file.
func endOf(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	return io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-logBytes), logBytes))
}

// addBundle adds what nodes said when the bundle was gathered.
func (x *Examiner) addBundle(e *doctor.Evidence) {
	c := x.Source.Bundle()
	if c == nil {
		return
	}
	e.NoNodes = fmt.Sprintf("the question is about a bundle of %s", c.About.Time.Format(time.RFC3339))
	for _, n := range c.Nodes {
		if x.Node != "" && n.Name != x.Node {
			continue
		}
		if n.Host != nil {
			e.Nodes, e.NoNodes = append(e.Nodes, doctor.Node{Name: n.Name, Host: n.Host}), ""
		}
		if n.Kernel == nil {
			continue
		}
		k := doctor.Kernel{Node: n.Name, Mode: n.Kernel.Mode, Objects: len(n.Kernel.Lines)}
		for _, line := range n.Kernel.Differences() {
			k.Differences = append(k.Differences, line.State+" "+line.String())
		}
		e.Kernel = append(e.Kernel, k)
	}
}
