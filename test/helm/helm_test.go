// Package helm holds `fairway server` to what others wrote: a chart of the usual kind
// is installed, upgraded, rolled back and removed by Helm's own library, and
// cert-manager's definitions are applied unchanged, with an object of each kind.
package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/release"
)

// TestChart goes through the life of a release of the chart that `helm create` writes,
// with all its parts switched on that the API serves.
func TestChart(t *testing.T) {
	kubeconfig := serve(t)
	configuration := new(action.Configuration)
	getter := kube.GetConfig(kubeconfig, "", "shop")
	if err := configuration.Init(getter, "shop", "secret", t.Logf); err != nil {
		t.Fatal(err)
	}
	usual := usualChart(t)
	values := map[string]any{"ingress": map[string]any{"enabled": true, "className": "fairway"}}

	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.Timeout = "web", "shop", true, time.Minute
	expect(t, "install")(install.Run(usual, values))
	kubectl(t, kubeconfig, "get", "-n", "shop", "deployment/web-usual", "service/web-usual", "serviceaccount/web-usual", "ingress/web-usual")

	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace, upgrade.Timeout = "shop", time.Minute
	values["replicaCount"] = 3
	expect(t, "upgrade")(upgrade.Run("web", usual, values))
	if n := kubectl(t, kubeconfig, "get", "-n", "shop", "deployment/web-usual", "-o", "jsonpath={.spec.replicas}"); n != "3" {
		t.Errorf("after the upgrade there are %s replicas", n)
	}
	rollback := action.NewRollback(configuration)
	rollback.Version, rollback.Timeout = 1, time.Minute
	if err := rollback.Run("web"); err != nil {
		t.Fatalf("roll back: %v", err)
	}
	if n := kubectl(t, kubeconfig, "get", "-n", "shop", "deployment/web-usual", "-o", "jsonpath={.spec.replicas}"); n != "1" {
		t.Errorf("after the rollback there are %s replicas", n)
	}
	list := action.NewList(configuration)
	releases, err := list.Run()
	if err != nil || len(releases) != 1 || releases[0].Version != 3 || releases[0].Info.Status != release.StatusDeployed {
		t.Errorf("the list is %v, %v", releases, err)
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.Timeout = time.Minute
	if _, err := uninstall.Run("web"); err != nil {
		t.Fatalf("uninstall: %v", err)
	}
	if left := kubectl(t, kubeconfig, "get", "-n", "shop", "deployments,services,ingresses,secrets", "-o", "name"); left != "" {
		t.Errorf("left over: %s", left)
	}
}

// usualChart is what `helm create` writes.
func usualChart(t *testing.T) *chart.Chart {
	t.Helper()
	dir, err := chartutil.Create("usual", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	usual, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return usual
}

func expect(t *testing.T, what string) func(*release.Release, error) {
	return func(r *release.Release, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r.Info.Status != release.StatusDeployed {
			t.Errorf("%s: the release is %s", what, r.Info.Status)
		}
	}
}

// TestCertManager applies cert-manager's definitions as they are, and an object of
// each kind.
func TestCertManager(t *testing.T) {
	kubeconfig := serve(t)
	definitions, err := filepath.Glob(filepath.Join(moduleDir(t, "github.com/cert-manager/cert-manager"), "deploy", "crds", "*.yaml"))
	if err != nil || len(definitions) != 6 {
		t.Fatalf("there are %d definitions, %v", len(definitions), err)
	}
	for _, file := range definitions {
		// Two are larger than what kubectl apply keeps of an object beside it.
		kubectl(t, kubeconfig, "apply", "--server-side", "-f", file)
	}
	kubectl(t, kubeconfig, "wait", "--for=condition=Established", "--timeout=2m", "crd", "--all")
	kubectl(t, kubeconfig, "apply", "-f", "testdata/certmanager.yaml")
	kubectl(t, kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "testdata/certmanager.yaml")
	for _, kind := range []string{"issuers", "clusterissuers", "certificates", "certificaterequests", "orders", "challenges"} {
		if out := kubectl(t, kubeconfig, "get", kind, "-o", "name"); out == "" {
			t.Errorf("there are no %s", kind)
		}
	}
	if out, err := try(kubeconfig, "patch", "certificate", "web", "--type=merge", "-p", `{"spec":{"privateKey":{"algorithm":"none"}}}`); err == nil {
		t.Errorf("a certificate with an unknown algorithm: %s", out)
	}
	for _, file := range definitions {
		kubectl(t, kubeconfig, "delete", "-f", file)
	}
	if out, err := try(kubeconfig, "get", "certificates"); err == nil {
		t.Errorf("certificates are still served: %s", out)
	}
}

// TestMain builds the server, unless FAIRWAY names one.
func TestMain(m *testing.M) {
	if program = os.Getenv("FAIRWAY"); program == "" {
		fmt.Fprintln(os.Stderr, "FAIRWAY: give the path of the fairway binary, as make check NAME=helm does")
		os.Exit(2)
	}
	os.Exit(m.Run())
}
