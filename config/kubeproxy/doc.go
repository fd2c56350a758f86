// Package kubeproxy reads what configures kube-proxy - a KubeProxyConfiguration
// (kubeproxy.config.k8s.io/v1alpha1) and kube-proxy's flags - and turns it into
// the configuration of an agent that replaces kube-proxy. It knows every field
// and flag of kube-proxy 1.28 to 1.37. One without an effect is a warning.
package kubeproxy
