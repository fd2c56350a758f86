package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/topology"
)

// sandbox is where a pod's containers run: its own namespace on the node or,
// with hostNetwork, the node's.
type sandbox struct {
	host *topology.Host
	node *topology.Node
	pod  *topology.Pod // nil with hostNetwork
	name string        // what commands find as the host's name
	part string        // the pod's cgroup, below the lab's
}

// PodName names a pod within its lab, for topology.PodNamespace.
func PodName(namespace, name string) string { return namespace + "." + name }

func newSandbox(node *topology.Node, pod *corev1.Pod) (*sandbox, error) {
	if pod.Spec.HostNetwork {
		return &sandbox{host: node.Host, node: node, name: node.Name, part: podCgroup(node, pod)}, nil
	}
	p, err := node.AddPod(PodName(pod.Namespace, pod.Name))
	if err != nil {
		return nil, err
	}
	return &sandbox{host: p.Host, node: node, pod: p, name: hostname(pod), part: podCgroup(node, pod)}, nil
}

// podCgroup is a pod's cgroup, below the lab's.
func podCgroup(node *topology.Node, pod *corev1.Pod) string {
	return node.Name + "/pods/" + string(pod.UID)
}

// hostname is a pod's: its own, or its name as far as that fits (Pod's
// spec.hostname, Kubernetes API reference).
func hostname(pod *corev1.Pod) string {
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return strings.TrimRight(name[:min(len(name), netns.LongestHostname)], "-.")
}

func (s *sandbox) addresses() []netip.Addr { return s.host.Addresses }

func (s *sandbox) remove() error {
	if dir, err := topology.FindCgroup(s.node.LabName(), s.part); err == nil {
		_ = os.Remove(dir) // not while a process is still ending; it goes with the lab then
	}
	if s.pod == nil {
		return nil
	}
	return s.pod.Remove()
}

// start starts a command in the sandbox: in a session of its own, so that it
// can be ended with all its children, in the pod's cgroup, and with a view of the
// file system of its own, which see changes on the thread that starts it.
func (s *sandbox) start(cmd *exec.Cmd, see func() error) error {
	dir, err := topology.Cgroup(s.node.LabName(), s.part)
	if err != nil {
		return err
	}
	cgroup, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open cgroup: %w", err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, true, int(cgroup.Fd())
	err = s.node.Powered(func() error { return s.host.NS.StartAs(cmd, s.name, see) })
	if closeErr := cgroup.Close(); err == nil && closeErr != nil {
		return fmt.Errorf("close cgroup: %w", closeErr)
	}
	return err
}

// startCommand starts a command of a container of the pod's.
func (w *worker) startCommand(in *sandbox, spec *corev1.Container, cmd *exec.Cmd) error {
	files, err := w.kubelet.files(w.first.Namespace)
	if err != nil {
		return err
	}
	own, err := w.writeHosts(in)
	if err != nil {
		return err
	}
	if own != "" {
		files = maps.Clone(files)
		if files == nil {
			files = map[string]string{}
		}
		files[hostsPath] = own
	}
	view, err := w.view(spec)
	if err != nil {
		return err
	}
	return in.start(cmd, func() error {
		if err := netns.Overlay(files); err != nil {
			return err
		}
		return view.apply()
	})
}
