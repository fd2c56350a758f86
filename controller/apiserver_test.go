//go:build !race

// The API server and etcd under the race detector take longer to build and to
// run than all other tests together; the same cases run on a fake API with it.

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"path"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/gateway"
)

// serverCases need what only a real API server does.
var serverCases = map[string]func(*rig){
	"load balancer":        testLoadBalancer,
	"neglected":            testNeglected,
	"service deleted":      testSlicesGoWithService,
	"namespace deleted":    testNamespaceDeleted,
	"owner deleted":        testOwnerDeleted,
	"owner in foreground":  testForegroundDeletion,
	"dependents orphaned":  testOrphanDeletion,
	"mirror goes with all": testMirrorGoesWithAll,
	"custom resources":     testCustomResources,
	"service ranges":       testServiceRanges,
	"namespace content":    testNamespaceContent,
	"circle of owners":     testCircleOfOwners,
	"quota":                testQuota,
	"nothing acts":         testNothingActs,
}

// faulty is a way to the API on which one write in twenty is not sent, and of
// another the answer is lost. Events are spared: the library that writes them, one
// after the other, waits up to ten seconds before it tries one again.
type faulty struct{ http.RoundTripper }

func (f faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	fate := rand.IntN(20)
	if request.Method == http.MethodGet || fate > 1 || path.Base(request.URL.Path) == "events" || path.Base(path.Dir(request.URL.Path)) == "events" {
		return f.RoundTripper.RoundTrip(request)
	}
	if fate == 0 {
		return nil, errInjected
	}
	response, err := f.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(errInjected, response.Body.Close())
}

// TestOnAPIServer runs every case against the embedded API server, with one
// set of controllers for all, whose writes often fail.
func TestOnAPIServer(t *testing.T) {
	config := apiserver.DefaultConfig()
	config.DataDir = t.TempDir()
	config.Port = 0
	config.ServiceCIDRs = append(config.ServiceCIDRs, netip.MustParsePrefix("fd00:96::/112"))
	server, err := apiserver.Start(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close API server: %v", err)
		}
	})
	loopback := server.LoopbackConfig()
	// The server says with each Endpoints object that they are deprecated.
	loopback.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		t.Fatal(err)
	}
	whole := &rig{T: t, client: client}
	whole.start(func(ctx context.Context, options controller.Options) error {
		config := server.LoopbackConfig()
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return faulty{inner} })
		return controller.Run(ctx, config, options)
	}, controller.Options{
		RootCA:     []byte(testCA),
		CountQuota: server.CountQuota,
		Lease:      &controller.Lease{Namespace: "kube-system", Name: "controllers", Identity: "test"},
		Gateway:    gateway.Options{Classes: true},
		Addresses:  addresses.Options{MakeNamespace: true, AnnounceGrace: 100 * time.Millisecond, Ranges: []string{"192.0.2.100-192.0.2.103"}},
	})

	whole.ns = whole.namespace()
	whole.awaitWork()

	all := maps.Clone(serverCases)
	for kind, cases := range map[string]map[string]func(*rig){"slices": sliceCases, "endpoints": endpointsCases, "mirroring": mirroringCases} {
		for name, test := range cases {
			all[kind+"/"+name] = test
		}
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, client: client, config: rest.CopyConfig(server.LoopbackConfig())}
			r.config.ContentType, r.config.AcceptContentTypes = "application/json", ""
			r.ns = r.namespace()
			t.Cleanup(r.removeNodes)
			test(r)
		})
	}
}

func (r *rig) namespace() string {
	r.Helper()
	created, err := r.client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "case-"}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return created.Name
}

// removeNodes leaves none for the next case.
func (r *rig) removeNodes() {
	nodes := r.client.CoreV1().Nodes()
	if err := nodes.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		r.Error(err)
	}
}

func testSlicesGoWithService(r *rig) {
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("a", "n1", "10.0.0.1"))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	r.deleteService("web")
	r.expectNoSlices("web")
	r.createService(service("web", nil))
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
}

func testMirrorGoesWithAll(r *rig) {
	r.createService(manual("db"))
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.expectEndpoints("db", "192.0.2.1:5432 ready")
	r.deleteService("db")
	r.expectNoSlices("db")
	r.eventually("Endpoints gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Endpoints(r.ns).Get(ctx, "db", metav1.GetOptions{})
		return gone(err)
	})
}

func testNamespaceDeleted(r *rig) {
	ctx := context.Background()
	r.createNode(node("n1", "z1"))
	r.createService(service("web", nil))
	r.createPod(pod("slow", "n1", "10.0.0.1"))
	r.createPod(pod("idle", "", "10.0.0.2"))
	r.createEndpoints(handmade("db", "192.0.2.1"))
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().ConfigMaps(r.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{})
	})
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 ready serving")
	if err := r.client.CoreV1().Namespaces().Delete(ctx, r.ns, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("the Pod that ends gracefully is reported", func(ctx context.Context) error {
		namespace, err := r.client.CoreV1().Namespaces().Get(ctx, r.ns, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range namespace.Status.Conditions {
			if c.Type == corev1.NamespaceContentRemaining && c.Message == "Some resources are remaining: pods has 1 resource instances" {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", namespace.Status.Conditions)
	})
	// What serves the Pod's last connections is there as long as it is.
	r.expectEndpoints("web", "10.0.0.1:8080 n1 z1 notready serving terminating")
	r.removePod("slow")
	r.eventually("namespace gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Namespaces().Get(ctx, r.ns, metav1.GetOptions{})
		return gone(err)
	})
	r.expectNoSlices("web")
	maps, err := r.client.CoreV1().ConfigMaps(r.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if len(maps.Items) > 0 {
		r.Errorf("%d ConfigMaps outlived their namespace", len(maps.Items))
	}
}

func testOwnerDeleted(r *rig) {
	uid := r.createDeployment("web")
	r.createPod(pod("a", "", "10.0.0.1", ownedByDeployment("web", uid)))
	lost := pod("lost", "", "10.0.0.2", ownedByDeployment("ghost", "no such uid"))
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().Pods(r.ns).Create(context.Background(), lost, metav1.CreateOptions{})
	})
	r.expectNoPod("lost")
	if _, err := r.client.CoreV1().Pods(r.ns).Get(context.Background(), "a", metav1.GetOptions{}); err != nil {
		r.Errorf("Pod of an owner that is there: %v", err)
	}
	r.deleteDeployment("web", metav1.DeletePropagationBackground)
	r.expectNoPod("a")
}

func testForegroundDeletion(r *rig) {
	r.createNode(node("n1", "z1"))
	uid := r.createDeployment("web")
	r.createPod(pod("a", "n1", "10.0.0.1", ownedByDeployment("web", uid)))
	r.deleteDeployment("web", metav1.DeletePropagationForeground)
	r.eventually("the Pod is told to end", func(ctx context.Context) error {
		p, err := r.client.CoreV1().Pods(r.ns).Get(ctx, "a", metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp == nil {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	if _, err := r.client.AppsV1().Deployments(r.ns).Get(context.Background(), "web", metav1.GetOptions{}); err != nil {
		r.Errorf("the owner went before its dependent: %v", err)
	}
	r.removePod("a")
	r.eventually("the owner goes", func(ctx context.Context) error {
		_, err := r.client.AppsV1().Deployments(r.ns).Get(ctx, "web", metav1.GetOptions{})
		return gone(err)
	})
}

func testOrphanDeletion(r *rig) {
	uid := r.createDeployment("web")
	r.createPod(pod("a", "", "10.0.0.1", ownedByDeployment("web", uid)))
	r.deleteDeployment("web", metav1.DeletePropagationOrphan)
	r.eventually("the owner goes", func(ctx context.Context) error {
		_, err := r.client.AppsV1().Deployments(r.ns).Get(ctx, "web", metav1.GetOptions{})
		return gone(err)
	})
	p, err := r.client.CoreV1().Pods(r.ns).Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if len(p.OwnerReferences) > 0 || p.DeletionTimestamp != nil {
		r.Errorf("orphan has owners %v and is being deleted since %v", p.OwnerReferences, p.DeletionTimestamp)
	}
}

func (r *rig) createDeployment(name string) types.UID {
	r.Helper()
	labels := map[string]string{"app": name}
	d, err := r.client.AppsV1().Deployments(r.ns).Create(context.Background(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "echo"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return d.UID
}

func (r *rig) deleteDeployment(name string, policy metav1.DeletionPropagation) {
	r.Helper()
	err := r.client.AppsV1().Deployments(r.ns).Delete(context.Background(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		r.Fatal(err)
	}
}

func ownedByDeployment(name string, uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: uid,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
	}
}

func (r *rig) expectNoPod(name string) {
	r.Helper()
	r.eventually("Pod "+name+" gone", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Pods(r.ns).Get(ctx, name, metav1.GetOptions{})
		return gone(err)
	})
}

// gone turns the result of a look for something into what is wrong with it.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("it is still there")
	}
	return err
}

// testCircleOfOwners: objects that own each other in a circle don't wait for each
// other when one is deleted in the foreground.
func testCircleOfOwners(r *rig) {
	ctx, configMaps := context.Background(), r.client.CoreV1().ConfigMaps(r.ns)
	names := []string{"a", "b", "c"}
	uids := map[string]types.UID{}
	for _, name := range names {
		r.do(func() (metav1.Object, error) {
			made, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err == nil {
				uids[name] = made.UID
			}
			return made, err
		})
	}
	for i, name := range names {
		owner := names[(i+2)%3]
		r.do(func() (metav1.Object, error) {
			c, err := configMaps.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: uids[owner], BlockOwnerDeletion: ptr.To(true)}}
			return configMaps.Update(ctx, c, metav1.UpdateOptions{})
		})
	}
	foreground := metav1.DeletePropagationForeground
	if err := configMaps.Delete(ctx, "a", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		r.Fatal(err)
	}
	r.eventually("all are gone", func(ctx context.Context) error {
		for _, name := range names {
			if _, err := configMaps.Get(ctx, name, metav1.GetOptions{}); gone(err) != nil {
				return fmt.Errorf("%s: %w", name, gone(err))
			}
		}
		return nil
	})
}
