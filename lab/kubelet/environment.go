package kubelet

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// command makes a command that runs as in a container: argv says what, of the
// container's environment. It isn't started.
func (w *worker) command(in *sandbox, spec *corev1.Container, argv func(env []corev1.EnvVar) []string) (*exec.Cmd, error) {
	env, err := environment(w.first, spec, in.addresses(), w.node.IPv4())
	if err != nil {
		return nil, err
	}
	words := argv(env)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = spec.WorkingDir
	for _, e := range env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	return cmd, nil
}

// environment is what a command finds: PATH and HOSTNAME as in a container, and
// the container's own variables. Values come from the manifest or from fields
// of the pod; those in ConfigMaps and Secrets are not for the lab.
func environment(pod *corev1.Pod, spec *corev1.Container, addresses []netip.Addr, node netip.Addr) ([]corev1.EnvVar, error) {
	env := []corev1.EnvVar{{Name: "PATH", Value: os.Getenv("PATH")}, {Name: "HOSTNAME", Value: pod.Name}}
	if len(spec.EnvFrom) > 0 {
		return nil, fmt.Errorf("envFrom: the lab has no volumes and no references to ConfigMaps or Secrets")
	}
	for _, e := range spec.Env {
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil {
				return nil, fmt.Errorf("env %s: valueFrom: the lab knows fieldRef only", e.Name)
			}
			value, err := fieldValue(pod, e.ValueFrom.FieldRef.FieldPath, addresses, node)
			if err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
			e = corev1.EnvVar{Name: e.Name, Value: value}
		} else {
			e.Value = expand([]string{e.Value}, env)[0]
		}
		env = append(env, e)
	}
	return env, nil
}

// fieldValue is a field of the pod (downward API).
func fieldValue(pod *corev1.Pod, path string, addresses []netip.Addr, node netip.Addr) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "status.hostIP":
		return node.String(), nil
	case "status.podIP":
		return addresses[0].String(), nil
	case "status.podIPs":
		var all []string
		for _, a := range addresses {
			all = append(all, a.String())
		}
		return strings.Join(all, ","), nil
	}
	return "", fmt.Errorf("fieldRef %s: not known to the lab", path)
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
