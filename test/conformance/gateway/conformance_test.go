// Package conformance runs Gateway API's own conformance suite, unchanged,
// against the cluster of $KUBECONFIG. test/conformance/gateway/run makes a lab
// for it.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
