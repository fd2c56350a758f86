// Package config reads what configures kube-proxy - a KubeProxyConfiguration
// (kubeproxy.config.k8s.io/v1alpha1) and kube-proxy's flags - and says what an
// agent in its place is to do. Every field and flag of kube-proxy 1.28 to 1.37
// is known here: it has its effect, or its name is in a warning.
package config
