// Package deploy holds what puts Fairway on machines: an image, manifests for a
// Kubernetes cluster in which it takes kube-proxy's place, and systemd units for
// machines without one. docs/how-to/replacing-kube-proxy.md says how to use them; the
// tests here hold them to what the binary and Kubernetes understand.
package deploy

//go:generate go run -C ../hack/manifests . ../../deploy
