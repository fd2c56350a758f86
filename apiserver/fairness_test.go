package apiserver

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/test/wait"
)

// fair waits until a server has the objects of priority and fairness, and looks at them.
func fair(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	ctx := within(t)
	for late := range wait.Tries(2 * time.Minute) {
		schemas, err := c.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		levels, err := c.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		settled := len(schemas.Items) == len(bootstrap.MandatoryFlowSchemas)+len(bootstrap.SuggestedFlowSchemas) &&
			len(levels.Items) == len(bootstrap.MandatoryPriorityLevelConfigurations)+len(bootstrap.SuggestedPriorityLevelConfigurations)
		for _, s := range schemas.Items {
			settled = settled && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Status == flowcontrolv1.ConditionFalse
		}
		if settled {
			return
		}
		if late {
			t.Fatalf("the objects of priority and fairness aren't settled: %v, %v", schemas.Items, levels.Items)
		}
	}
}

// TestFairnessObjects: the objects are Kubernetes' own, kubectl prints them, those of the server come back,
// and somebody's own settings stay.
func TestFairnessObjects(t *testing.T) {
	s := start(t, testConfig(t))
	c, ctx := client(t, s), within(t)
	fair(t, c)
	table := kubectl(t, s, "", "get", "flowschemas,prioritylevelconfigurations")
	for _, want := range []string{
		"flowschema.flowcontrol.apiserver.k8s.io/system-nodes ", "system", "MISSINGPL", "ByUser",
		"prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/workload-low ", "NOMINALCONCURRENCYSHARES", "Exempt",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	schemas, levels := c.FlowcontrolV1().FlowSchemas(), c.FlowcontrolV1().PriorityLevelConfigurations()
	for _, err := range []error{
		schemas.Delete(ctx, "exempt", metav1.DeleteOptions{}), schemas.Delete(ctx, "system-nodes", metav1.DeleteOptions{}),
		levels.Delete(ctx, "catch-all", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := schemas.Patch(ctx, "probes", types.MergePatchType, []byte(`{"spec":{"matchingPrecedence":3}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	own := []byte(`{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"limited":{"nominalConcurrencyShares":7}}}`)
	if _, err := levels.Patch(ctx, "workload-low", types.MergePatchType, own, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	wait.Until(t, 2*time.Minute, "the server takes back its own settings", func() bool {
		probes, err := schemas.Get(ctx, "probes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return probes.Spec.MatchingPrecedence == 2
	})
	fair(t, c)
	low, err := levels.Get(ctx, "workload-low", metav1.GetOptions{})
	if err != nil || *low.Spec.Limited.NominalConcurrencyShares != 7 {
		t.Errorf("own shares were taken back: %v, %v", low, err)
	}
	refused := `{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: first}, spec: {matchingPrecedence: 1, priorityLevelConfiguration: {name: catch-all}}}`
	if out, err := tryKubectl(t, s, refused, "apply", "-f", "-"); err == nil || !strings.Contains(out, "only the schema named 'exempt' may have matchingPrecedence 1") {
		t.Errorf("a schema before that of administrators: %v: %s", err, out)
	}
}

// narrow leaves a server room for few requests of ordinary users at a time, so that
// a test can take it all.
func narrow(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},
		"spec":{"limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"lendablePercent":0,"limitResponse":{"type":"Reject","queuing":null}}}}`)
	if _, err := c.FlowcontrolV1().PriorityLevelConfigurations().Patch(within(t), "global-default", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFairnessBetweenUsers: a user's flood takes that user's turn only. Nodes and
// administrators have priority levels of their own, and what is refused says so.
func TestFairnessBetweenUsers(t *testing.T) {
	config := testConfig(t)
	config.TokenFile = filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(config.TokenFile, []byte("eve-token,eve,1,people\nnode-token,system:node:n1,2,system:nodes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, config)
	admin := client(t, s)
	fair(t, admin)
	as := func(token string) *rest.Config {
		return &rest.Config{Host: s.LoopbackConfig().Host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
	}
	eve, node := as("eve-token"), as("node-token")
	if level := levelOf(t, admin, eve); level != "global-default" {
		t.Errorf("eve is served at level %s", level)
	}
	if level := levelOf(t, admin, node); level != "system" {
		t.Errorf("a node is served at level %s", level)
	}
	narrow(t, admin)
	refused := 0
	for end := time.Now().Add(time.Minute); refused == 0 && time.Now().Before(end); {
		if response := discover(t, eve); response.StatusCode == http.StatusTooManyRequests {
			refused++
			if response.Header.Get("Retry-After") == "" || response.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == "" {
				t.Errorf("headers of what is refused: %v", response.Header)
			}
		}
	}
	if refused == 0 {
		t.Error("eve is never refused at a level without room")
	}
	flood(t, eve, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range 50 {
			if response := discover(t, node); response.StatusCode != http.StatusOK {
				t.Errorf("a node beside a flood: %s", response.Status)
			}
			if _, err := admin.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
				t.Errorf("an administrator beside a flood: %v", err)
			}
		}
	})
}

// flood has a user ask without end while something else happens.
func flood(t *testing.T, user *rest.Config, meanwhile func()) {
	t.Helper()
	var ended atomic.Bool
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			for !ended.Load() {
				discover(t, user)
			}
		})
	}
	meanwhile()
	ended.Store(true)
	asking.Wait()
}

var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 100}}

// discover asks for what everybody may read.
func discover(t *testing.T, user *rest.Config) *http.Response {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, user.Host+"/api", nil)
	if err != nil {
		t.Error(err)
		return &http.Response{}
	}
	request.Header.Set("Authorization", "Bearer "+user.BearerToken)
	response, err := insecure.Do(request)
	if err != nil {
		t.Error(err)
		return &http.Response{}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response
}

// levelOf is the priority level of a user's requests, by what the server says.
func levelOf(t *testing.T, admin kubernetes.Interface, user *rest.Config) string {
	t.Helper()
	uid := discover(t, user).Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid")
	levels, err := admin.FlowcontrolV1().PriorityLevelConfigurations().List(within(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels.Items {
		if string(l.UID) == uid {
			return l.Name
		}
	}
	return "of uid " + uid
}
