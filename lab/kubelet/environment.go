package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/lab/topology"
)

// command makes a command that runs as in a container: argv says what, of the
// container's environment, with the paths of its volumes. It isn't started.
func (w *worker) command(in *sandbox, spec *corev1.Container, argv func(env []corev1.EnvVar) []string) (*exec.Cmd, error) {
	env, err := w.environment(context.Background(), spec, in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	words := argv(env)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = spec.WorkingDir
	for _, e := range env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	return cmd, nil
}

// environment is what a command finds: PATH and HOSTNAME as in a container,
// the addresses of the namespace's Services, and the container's own variables.
func (w *worker) environment(ctx context.Context, spec *corev1.Container, in *sandbox) ([]corev1.EnvVar, error) {
	env := []corev1.EnvVar{{Name: "PATH", Value: os.Getenv("PATH")}, {Name: "HOSTNAME", Value: in.name}}
	links, err := w.serviceLinks(ctx)
	if err != nil {
		return nil, err
	}
	env = append(env, links...)
	for i, from := range spec.EnvFrom {
		all, err := w.variablesFrom(ctx, from)
		if err != nil {
			return nil, fmt.Errorf("envFrom[%d]: %w", i, err)
		}
		env = append(env, all...)
	}
	for _, e := range spec.Env {
		value, set := expand([]string{e.Value}, env)[0], true
		if e.ValueFrom != nil {
			value, set, err = w.valueFrom(ctx, e.ValueFrom, spec, in.addresses())
		}
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", e.Name, err)
		}
		if set {
			env = append(env, corev1.EnvVar{Name: e.Name, Value: value})
		}
	}
	return env, nil
}

// fieldValue is a field of the pod (downward API).
func fieldValue(pod *corev1.Pod, path string, addresses []netip.Addr, node *topology.Node) (string, error) {
	for prefix, values := range map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix+"['"); ok && strings.HasSuffix(key, "']") {
			return values[strings.TrimSuffix(key, "']")], nil
		}
	}
	switch path {
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIPs":
		return joined(node.Addresses), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "status.hostIP":
		return node.IPv4().String(), nil
	case "status.podIP":
		return addresses[0].String(), nil
	case "status.podIPs":
		return joined(addresses), nil
	}
	return "", fmt.Errorf("fieldRef %s: not known to the lab", path)
}

func joined(addresses []netip.Addr) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = a.String()
	}
	return strings.Join(all, ",")
}

// expand replaces $(NAME) by the variable's value where there is such a
// variable, and $$ by $ (the API's rule for command, args and env).
func expand(words []string, env []corev1.EnvVar) []string {
	pairs := []string{"$$", "$"}
	for i := len(env) - 1; i >= 0; i-- { // of two with the same name, the later counts
		pairs = append(pairs, "$("+env[i].Name+")", env[i].Value)
	}
	replacer := strings.NewReplacer(pairs...)
	expanded := make([]string, len(words))
	for i, w := range words {
		expanded[i] = replacer.Replace(w)
	}
	return expanded
}
