package rights

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// TestHealthWithoutRoles: how the server is may be asked by anybody, also while
// there are no roles, as in a cluster's first start; nothing else may.
func TestHealthWithoutRoles(t *testing.T) {
	may := New(NewRBAC(informers.NewSharedInformerFactory(fake.NewClientset(), 0).Rbac().V1()), &PeerSecrets{}, &GatewayReferences{})
	nobody := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/metrics", "/api", "/healthz/etcd"} {
		decision, _, err := may.Authorize(t.Context(), authorizer.AttributesRecord{User: nobody, Verb: "get", Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := decision == authorizer.DecisionAllow, slices.Contains([]string{"/healthz", "/livez", "/readyz"}, path); got != want {
			t.Errorf("get %s: allowed %t, want %t", path, got, want)
		}
	}
	joining := &user.DefaultInfo{Name: "server", Groups: []string{JoiningServersGroup}}
	if decision, _, _ := may.Authorize(t.Context(), authorizer.AttributesRecord{User: joining, Verb: "get", Path: "/readyz"}); decision == authorizer.DecisionAllow {
		t.Error("a server token reads /readyz")
	}
}
