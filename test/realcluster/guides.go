package realcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// copyDeploy copies the folder deploy, and does what the guides begin with: the image is
// set as `kustomize edit set image` does.
func (c *Cluster) copyDeploy() error {
	c.deploy = filepath.Join(c.dir, "deploy")
	if err := os.CopyFS(c.deploy, os.DirFS(c.options.Deploy)); err != nil {
		return fmt.Errorf("copy deploy: %w", err)
	}
	return c.Edit("base", fmt.Sprintf("images: [{name: fairway, newName: %s, newTag: %s}]", FairwayImage, FairwayTag))
}

// Edit adds a line to a folder's kustomization.
func (c *Cluster) Edit(folder, line string) error {
	file := filepath.Join(c.deploy, folder, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.TrimRight(string(text), "\n")+"\n"+line+"\n"), 0o644)
}

// Apply applies a folder of deploy as the guides say.
func (c *Cluster) Apply(folder string) error {
	_, err := c.Kubectl("", "apply", "--server-side", "--field-manager", "fairway", "-k", filepath.Join(c.deploy, folder))
	return err
}

// RolledOut waits until a DaemonSet or Deployment is as it shall be.
func (c *Cluster) RolledOut(namespace, what string) error {
	_, err := c.Kubectl("", "-n", namespace, "rollout", "status", what, "--timeout=240s")
	if err == nil {
		return nil
	}
	pods, _ := c.Kubectl("", "-n", namespace, "get", "pods", "-o", "wide")
	logs, _ := c.Kubectl("", "-n", namespace, "logs", what, "--tail=20", "--all-containers")
	return fmt.Errorf("%w\n%s\n%s", err, pods, logs)
}

// Restart restarts all pods of a DaemonSet or Deployment and waits until that is done.
func (c *Cluster) Restart(namespace, what string) error {
	if _, err := c.Kubectl("", "-n", namespace, "rollout", "restart", what); err != nil {
		return err
	}
	return c.RolledOut(namespace, what)
}

// Move has Fairway, or kube-proxy again, serve a node, as the guide says, and waits for it.
func (c *Cluster) Move(n *Node, to string) error {
	if _, err := c.Kubectl("", "label", "--overwrite", "node", n.Name, "fairway.dev/proxy="+to); err != nil {
		return err
	}
	return c.await(n.Name+" is served by "+to, func() error { return n.servedBy(to) })
}

// served waits until Fairway serves all nodes.
func (c *Cluster) served() error {
	for _, n := range c.Nodes {
		if err := c.await(n.Name+" is served by Fairway", func() error { return n.servedBy("fairway") }); err != nil {
			return err
		}
	}
	return nil
}

// servedBy says whether it is Fairway, or kube-proxy, that has all Services in the kernel.
func (n *Node) servedBy(proxy string) error {
	text, err := n.get("127.0.0.1:10249/metrics")
	if err != nil {
		return err
	}
	if strings.Contains(text, "\nfairway_") != (proxy == "fairway") {
		return errors.New("the other's metrics are answered")
	}
	return n.ready()
}

// ready says whether the proxy of a node has all Services in the kernel.
func (n *Node) ready() error {
	_, err := n.get(n.IPv4().String() + ":10256/livez")
	return err
}

var (
	modeLine    = regexp.MustCompile(`(?m)^mode: .*$`)
	metricsLine = regexp.MustCompile(`(?m)^metricsBindAddress: .*$`)
)

// SetMode changes the mode in kube-proxy's ConfigMap, and waits until all agents have it.
func (c *Cluster) SetMode(mode string) error {
	if err := c.EditConfig(modeLine, "mode: "+mode); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := c.await(n.Name+" is in "+mode+" mode", func() error { return n.isIn(mode) }); err != nil {
			return err
		}
	}
	return nil
}

// EditConfig changes a line of the configuration in kube-proxy's ConfigMap, as
// `kubectl edit` does.
func (c *Cluster) EditConfig(line *regexp.Regexp, to string) error {
	text, err := c.Kubectl("", "-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "jsonpath={.data.config\\.conf}")
	if err != nil {
		return err
	}
	if !line.MatchString(text) {
		return fmt.Errorf("the ConfigMap kube-proxy has no line %s", line)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config.conf": line.ReplaceAllString(text, to)}})
	if err != nil {
		return err
	}
	_, err = c.Kubectl("", "-n", "kube-system", "patch", "configmap", "kube-proxy", "--type=merge", "--patch", string(patch))
	return err
}

func (n *Node) isIn(mode string) error {
	got, err := n.get("127.0.0.1:10249/proxyMode")
	if err == nil && strings.TrimSpace(got) != mode {
		err = fmt.Errorf("it is in %s mode", got)
	}
	return errors.Join(err, n.ready())
}

// get asks a server from the node's network.
func (n *Node) get(url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: timeout}
	response, err := client.Get("http://" + url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), err
}

// await tries until it succeeds.
func (c *Cluster) await(what string, try func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			pods, _ := c.Kubectl("", "get", "pods", "-A", "-o", "wide")
			return fmt.Errorf("not reached: %s: %w\n%s", what, err, pods)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
