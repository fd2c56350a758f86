package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab/topology"
)

// Client makes a client for a lab's API, for use on the host.
func Client(name string) (kubernetes.Interface, error) {
	if _, err := Load(name); err != nil {
		return nil, err
	}
	config, err := kube.Config(Kubeconfig(name))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kube.Client(config)
}

// WriteList writes a line for each lab on this machine.
func WriteList(w io.Writer) error {
	names, err := List()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LAB\tSTATE\tMODE\tNODES\tSUPERVISOR\tKUBECONFIG")
	for _, name := range names {
		s, err := Load(name)
		if err != nil {
			fmt.Fprintf(table, "%s\tleft over\t\t\t\t\n", name)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\n", name, s.phase(), s.Config.Mode, s.Config.Nodes, s.Supervisor.PID, Kubeconfig(name))
	}
	return table.Flush()
}

func (s State) phase() string {
	switch {
	case !s.Supervisor.alive():
		return "crashed"
	case !s.Ready:
		return "starting"
	}
	return "up"
}

// WriteStatus writes what a lab is and how its nodes are.
func WriteStatus(ctx context.Context, w io.Writer, name string) error {
	s, err := Load(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "lab %s: %s, mode %s, supervisor %d, up for %v\nkubeconfig: %s\n\n",
		name, s.phase(), s.Config.Mode, s.Supervisor.PID, time.Since(s.Started).Round(time.Second), Kubeconfig(name))
	client, err := Client(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tADDRESS\tPOD CIDR\tZONE\tPODS\tMODE\tVERSION\tAGENT\tCPU\tMEMORY")
	for _, n := range nodes.Items {
		if err := writeNode(ctx, table, name, &n, pods.Items); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	faults, err := Faults(ctx, name)
	if err != nil {
		return err
	}
	for _, f := range faults {
		if f.Node != "" {
			fmt.Fprintf(w, "\nbroken: node %s, %s", f.Node, f.Kind)
		} else {
			fmt.Fprintf(w, "\nbroken: pod %s, %s", f.Pod, f.Kind)
		}
	}
	if len(faults) > 0 {
		fmt.Fprintf(w, "\nundo it: fairway lab mend --name %s\n", name)
	}
	return nil
}

func writeNode(ctx context.Context, w io.Writer, lab string, n *corev1.Node, pods []corev1.Pod) error {
	on := 0
	for _, p := range pods {
		if p.Spec.NodeName == n.Name {
			on++
		}
	}
	a, err := readAgent(lab, n.Name)
	if err != nil {
		return err
	}
	address := ""
	if len(n.Status.Addresses) > 0 {
		address = n.Status.Addresses[0].Address
	}
	_, err = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
		n.Name, address, n.Spec.PodCIDR, n.Labels[corev1.LabelTopologyZone], on,
		modeInUse(ctx, lab, n.Name), n.Status.NodeInfo.KubeletVersion, a.pid, a.cpu, a.memory)
	return err
}

// agentUse is what a node's agent uses, as text; "-" where it isn't known.
type agentUse struct{ pid, cpu, memory string }

// readAgent reads it from the agent's cgroup.
func readAgent(lab, node string) (agentUse, error) {
	use := agentUse{"-", "-", "-"}
	dir, err := topology.FindCgroup(lab, node+"/agent")
	if errors.Is(err, cgroup.ErrNone) {
		return use, nil
	}
	if err != nil {
		return use, err
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return use, nil
	}
	if err != nil {
		return use, fmt.Errorf("read the agent's cgroup: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return use, fmt.Errorf("read the agent's cgroup: %w", err)
	}
	if usec, err := strconv.Atoi(after(string(stat), "usage_usec")); err == nil {
		use.cpu = (time.Duration(usec) * time.Microsecond).Round(time.Millisecond).String()
	}
	pids := strings.Fields(string(procs))
	if len(pids) == 0 {
		return use, nil
	}
	use.pid = pids[0]
	status, err := os.ReadFile(filepath.Join("/proc", use.pid, "status"))
	if err != nil {
		return use, nil // ended meanwhile
	}
	if kb, err := strconv.Atoi(after(string(status), "VmRSS:")); err == nil {
		use.memory = fmt.Sprintf("%d MiB", kb/1024)
	}
	return use, nil
}

// after is the word after another one.
func after(text, word string) string {
	fields := strings.Fields(text)
	if i := slices.Index(fields, word); i >= 0 && i+1 < len(fields) {
		return fields[i+1]
	}
	return ""
}
