package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hostsPath is where resolvers look before they ask (hosts(5)).
const hostsPath = "/etc/hosts"

// hosts is what the pod finds at /etc/hosts: itself, and the names that it was given.
func hosts(pod *corev1.Pod, in *sandbox) string {
	var text strings.Builder
	text.WriteString("# Written for a pod of the lab.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, a := range in.addresses() {
		fmt.Fprintf(&text, "%s\t%s\n", a, in.name)
	}
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&text, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return text.String()
}

// writeHosts writes the pod's /etc/hosts and says where it is; "" for pods with the
// network of their node, which find the machine's.
func (w *worker) writeHosts(in *sandbox) (string, error) {
	if in.pod == nil {
		return "", nil
	}
	path := filepath.Join(w.volumesDir(), "etc-hosts")
	text := hosts(w.first, in)
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return path, nil // in use
	}
	if err := os.MkdirAll(w.volumesDir(), 0o755); err != nil {
		return "", fmt.Errorf("make the pod's folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write %s: %w", hostsPath, err)
	}
	return path, nil
}
