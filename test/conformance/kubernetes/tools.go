//go:build tools

// Package conformance pins Kubernetes' own conformance tests.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
