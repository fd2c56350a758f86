//go:build !agentonly

package kubectl

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/scheme"
)

// TestNoLimitOfRequests: pages of a list follow each other at once. client-go gives a
// client without a limit of its own no limiter, and one of five requests a second if none
// is configured.
func TestNoLimitOfRequests(t *testing.T) {
	config := configure(&rest.Config{Host: "127.0.0.1", ContentConfig: rest.ContentConfig{
		GroupVersion: &scheme.Scheme.PrioritizedVersionsAllGroups()[0], NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}}, "")
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if limiter := client.GetRateLimiter(); limiter != nil {
		t.Errorf("requests are limited to %v a second", limiter.QPS())
	}
}
