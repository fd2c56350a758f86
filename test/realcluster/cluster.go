package realcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// Options are what a cluster is made of.
type Options struct {
	Version   string // of Kubernetes: "1.36.3"
	Programs  string // a folder with kubelet, kubeadm, kubectl, the control plane's and etcd
	Fairway   string // the program on the administrator's machine
	Agent     string // the program of the image, with what a DaemonSet needs alone
	Last      string // the last release's program, if its image is to be there, too
	Agnhost   string // the program of the pods of Kubernetes' own tests, if they are to be run
	Probe     string // the program of pods (test/realcluster/probe)
	CoreDNS   string
	Deploy    string // the repository's folder deploy
	Nodes     int
	ProxyMode string // kube-proxy's, to begin with
	CNI       CNI
}

// Cluster is a cluster of nodes on this machine. The outside client of its network is
// the administrator's machine.
type Cluster struct {
	Nodes   []*Node
	Clients []*Client // once Work has succeeded

	options     Options
	name        string
	dir         string
	deploy      string // a copy of the folder deploy, as somebody has who follows the guides
	lab         *topology.Lab
	hierarchies []hierarchy
	pause       string // the image of pods' sandboxes
	kubeconfig  string
	asking      []*exec.Cmd
}

// New makes a cluster, with its nodes ready. What it leaves behind if it fails is
// removed by Remove, too.
func New(name string, o Options) (*Cluster, error) {
	c := &Cluster{name: name, options: o}
	var err error
	if c.hierarchies, err = hierarchies(); err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	if c.dir, err = os.MkdirTemp("", "fairway-realcluster-"); err != nil {
		return nil, err
	}
	if c.lab, err = topology.New(name, topology.Options{}); err != nil {
		return c, err
	}
	if err := c.copyDeploy(); err != nil {
		return c, err
	}
	files, err := c.images()
	if err != nil {
		return c, err
	}
	for i := range o.Nodes {
		if err := c.addNode(fmt.Sprintf("node%d", i+1), files); err != nil {
			return c, err
		}
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return c, err
		}
	}
	return c, c.create()
}

// addNode boots a node that has all images.
func (c *Cluster) addNode(name string, images []string) error {
	host, err := c.lab.AddNode(name)
	if err != nil {
		return err
	}
	n := &Node{Node: host, cluster: c, disk: filepath.Join(c.dir, name)}
	c.Nodes = append(c.Nodes, n)
	hosts := "127.0.0.1 localhost\n::1 localhost\n" + n.IPv4().String() + " " + name + "\n"
	err = errors.Join(n.cable(),
		n.write("etc/containerd/config.toml", fmt.Sprintf(containerdConfig, c.pause)),
		n.write("etc/cni/net.d/10-pods.conflist", c.options.CNI.config(n.PodCIDRs)),
		n.write("etc/resolv.conf", "nameserver "+c.lab.Underlay().IPv4().String()+"\n"),
		n.write("etc/hosts", hosts),
		n.write("etc/hostname", name+"\n"))
	if err != nil {
		return fmt.Errorf("prepare %s: %w", name, err)
	}
	if err := n.start(); err != nil {
		return err
	}
	for _, file := range images {
		if err := n.must("ctr", "--namespace", "k8s.io", "images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

// create has kubeadm make the cluster.
func (c *Cluster) create() error {
	first := c.Nodes[0]
	const config = "/etc/kubernetes/kubeadm.yaml"
	if err := first.write(config, first.initConfig(c.options.Version, c.options.ProxyMode)); err != nil {
		return err
	}
	if err := first.must("kubeadm", "init", "--config", config, "--ignore-preflight-errors=all"); err != nil {
		return fmt.Errorf("%w\nthe kubelet says:\n%s", err, first.Log("kubelet"))
	}
	admin, err := os.ReadFile(filepath.Join(first.disk, "etc/kubernetes/admin.conf"))
	if err != nil {
		return err
	}
	c.kubeconfig = filepath.Join(c.dir, "admin.conf")
	if err := os.WriteFile(c.kubeconfig, admin, 0o600); err != nil {
		return err
	}
	for _, n := range c.Nodes[1:] {
		if err := n.write(config, n.joinConfig(first.IPv4())); err != nil {
			return err
		}
		if err := n.must("kubeadm", "join", "--config", config, "--ignore-preflight-errors=all"); err != nil {
			return fmt.Errorf("%w\nthe kubelet says:\n%s", err, n.Log("kubelet"))
		}
	}
	for _, wait := range [][]string{
		{"wait", "--for=condition=Ready", "node", "--all", "--timeout=180s"},
		{"-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=180s"},
	} {
		if _, err := c.Kubectl("", wait...); err != nil {
			return err
		}
	}
	if c.options.CNI.isFlannel() {
		if err := c.flannel(); err != nil {
			return fmt.Errorf("flannel: %w", err)
		}
	}
	_, err = c.Kubectl("", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s")
	return err
}

// Kubectl runs kubectl on the administrator's machine, which is outside the cluster,
// with a text on its standard input.
func (c *Cluster) Kubectl(input string, args ...string) (string, error) {
	return c.Admin(input, append([]string{filepath.Join(c.options.Programs, "kubectl")}, args...)...)
}

// Admin runs a program on the administrator's machine.
func (c *Cluster) Admin(input string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+c.dir)
	err := c.lab.Client().NS.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(command[0]), strings.Join(command[1:], " "), err, out.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Remove ends all and removes all.
func (c *Cluster) Remove() error {
	var errs []error
	for _, cmd := range c.asking {
		_ = cmd.Process.Kill() // it may have ended with its node
		_ = cmd.Wait()
	}
	for _, n := range c.Nodes {
		errs = append(errs, n.stop())
	}
	if c.lab != nil {
		errs = append(errs, c.lab.Remove())
	}
	errs = append(errs, removeGroups(c.hierarchies, func(h hierarchy) string { return filepath.Dir(h.group(c.name, "any")) }))
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
