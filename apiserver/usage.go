package apiserver

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What nodes and pods use, as `kubectl top` reads it. In Kubernetes the metrics
// server serves this group behind an aggregator (k8s.io/metrics).
const (
	usageGroup   = "metrics.k8s.io"
	usageVersion = "v1beta1"
	usagePath    = "/apis/" + usageGroup + "/" + usageVersion
)

// usageResources are the group's.
var usageResources = []metav1.APIResource{
	{Name: "nodes", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}},
	{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}},
}

// serveUsage passes requests of the group on to what runs pods. Where nothing
// does, the group isn't there.
func (s *Server) serveUsage() {
	if s.config.Kubelet == "" {
		return
	}
	version := metav1.GroupVersionForDiscovery{GroupVersion: usageGroup + "/" + usageVersion, Version: usageVersion}
	group := metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     usageGroup, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
	s.generic.DiscoveryGroupManager.AddGroup(group)
	s.generic.AggregatedDiscoveryGroupManager.AddGroupVersion(usageGroup, usageDiscovery())
	mux := s.generic.Handler.NonGoRestfulMux
	mux.Handle("/apis/"+usageGroup, answerJSON(group))
	mux.Handle(usagePath, answerJSON(metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: version.GroupVersion, APIResources: usageResources,
	}))
	mux.HandlePrefix(usagePath+"/", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: "kubelet", Path: "/usage" + strings.TrimPrefix(r.In.URL.Path, usagePath), RawQuery: r.In.URL.RawQuery}
			r.Out.Header = http.Header{} // whoever asks, the kubelet trusts this server
		},
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", string(s.config.Kubelet))
		}},
	})
}

func usageDiscovery() apidiscoveryv2.APIVersionDiscovery {
	version := apidiscoveryv2.APIVersionDiscovery{Version: usageVersion, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, r := range usageResources {
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Name, Scope: scope, Verbs: r.Verbs,
			ResponseKind: &metav1.GroupVersionKind{Group: usageGroup, Version: usageVersion, Kind: r.Kind},
		})
	}
	return version
}

func answerJSON(object any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object) // the client may be gone
	}
}
