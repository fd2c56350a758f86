package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/config/kubeproxy"
)

// folders are those to be applied with `kubectl apply -k`.
var folders = []string{"base", "kubeadm", "kubeadm-back", "node-by-node", "testdata/ebpf"} // and cleanup, which needs others

// build is `kubectl kustomize`, with every object decoded strictly: a field that
// Kubernetes doesn't know fails the test.
func build(t *testing.T, folder string) []runtime.Object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var objects []runtime.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, document)
		}
		objects = append(objects, object)
	}
}

// find is the object of a type and name.
func find[T any, P interface {
	*T
	metav1.Object
}](objects []runtime.Object, name string) P {
	for _, o := range objects {
		if p, ok := o.(P); ok && p.GetName() == name {
			return p
		}
	}
	return nil
}

// TestManifests: what is applied fits together, and asks for nothing but the
// role of kube-proxy.
func TestManifests(t *testing.T) {
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, folder)
			account := find[corev1.ServiceAccount](objects, "fairway")
			daemons := find[appsv1.DaemonSet](objects, "fairway")
			if account == nil || daemons == nil {
				t.Fatal("no ServiceAccount or no DaemonSet")
			}
			for _, o := range objects {
				switch o := o.(type) {
				case *rbacv1.ClusterRoleBinding:
					want := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"}
					if o.RoleRef != want {
						t.Errorf("bound to %v", o.RoleRef)
					}
					subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
					if !slices.Equal(o.Subjects, []rbacv1.Subject{subject}) {
						t.Errorf("bound are %v, want %v", o.Subjects, subject)
					}
				case *corev1.ServiceAccount, *corev1.ConfigMap, *appsv1.DaemonSet:
				default:
					t.Errorf("a %T is applied too", o)
				}
			}
			pod := daemons.Spec.Template
			if pod.Spec.ServiceAccountName != account.Name || !pod.Spec.HostNetwork {
				t.Errorf("account %q, host network %t", pod.Spec.ServiceAccountName, pod.Spec.HostNetwork)
			}
			selector, err := metav1.LabelSelectorAsSelector(daemons.Spec.Selector)
			if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
				t.Errorf("selector %v, labels %v: %v", selector, pod.Labels, err)
			}
			checkMounts(t, objects, &pod.Spec)
			if cleanup := find[appsv1.DaemonSet](objects, "fairway-cleanup"); cleanup != nil {
				checkCleanup(t, objects, cleanup, pod.Spec.Containers[0].Image)
			}
		})
	}
}

// checkCleanup: what cleans up after Fairway is of its image, and asks for no
// account.
func checkCleanup(t *testing.T, objects []runtime.Object, d *appsv1.DaemonSet, image string) {
	t.Helper()
	pod := &d.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Image != image {
			t.Errorf("container %s is of image %s, want %s", c.Name, c.Image, image)
		}
	}
	if account := pod.AutomountServiceAccountToken; account == nil || *account || pod.ServiceAccountName != "" || !pod.HostNetwork {
		t.Errorf("account %q, host network %t", pod.ServiceAccountName, pod.HostNetwork)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("selector %v, labels %v: %v", selector, d.Spec.Template.Labels, err)
	}
	if fairway := find[appsv1.DaemonSet](objects, "fairway"); selector.Matches(labels.Set(fairway.Spec.Template.Labels)) {
		t.Error("Fairway's own pods are taken for those that clean up")
	}
	checkMounts(t, objects, pod)
}

// checkMounts: every volume is used, and every ConfigMap is there: applied, or
// kubeadm's own.
func checkMounts(t *testing.T, objects []runtime.Object, pod *corev1.PodSpec) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = false
		if m := v.ConfigMap; m != nil && m.Name != "kube-proxy" && find[corev1.ConfigMap](objects, m.Name) == nil {
			t.Errorf("volume %s is of a ConfigMap %s, which is nowhere", v.Name, m.Name)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				t.Errorf("container %s mounts a volume %s, which isn't there", c.Name, m.Name)
			}
			volumes[m.Name] = true
		}
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("container %s may write to its root file system", c.Name)
		}
	}
	for name, used := range volumes {
		if !used {
			t.Errorf("nobody mounts volume %s", name)
		}
	}
}

// TestConfiguration: every line of the configuration that is deployed counts.
func TestConfiguration(t *testing.T) {
	text := find[corev1.ConfigMap](build(t, "base"), "fairway").Data["config.conf"]
	c, warnings, err := kubeproxy.Parse([]byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if err := kubeproxy.Validate(c); err != nil {
		t.Error(err)
	}
	if warnings := kubeproxy.Warnings(c); len(warnings) > 0 {
		t.Error(warnings)
	}
}

// kubeadmProxy is kube-proxy's DaemonSet as kubeadm makes it.
func kubeadmProxy() *appsv1.DaemonSet {
	app := map[string]string{"k8s-app": "kube-proxy"}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy", Labels: app},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{
					HostNetwork: true, ServiceAccountName: "kube-proxy", PriorityClassName: "system-node-critical",
					NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
					Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:   []corev1.Container{{Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.37.2"}},
				},
			},
		},
	}
}

// TestThereAndBack applies the folders one after the other, as an API server
// does server-side, to what kubeadm made: kube-proxy goes, and comes back as it
// was.
func TestThereAndBack(t *testing.T) {
	client := fake.NewClientset()
	ctx := t.Context()
	if _, err := client.AppsV1().DaemonSets("kube-system").Create(ctx, kubeadmProxy(), metav1.CreateOptions{FieldManager: "kubeadm"}); err != nil {
		t.Fatal(err)
	}
	original := kubeadmProxy().Spec.Template.Spec
	for i, step := range []struct {
		folder  string
		proxy   string            // the label that kube-proxy's nodes have, or not, by affinity
		fairway map[string]string // the labels that Fairway's nodes have
		cleanup map[string]string // the labels of nodes that are cleaned up, once that was applied
	}{
		{"kubeadm", "fairway.dev/run-kube-proxy Exists []", nil, nil},
		{"kubeadm-back", "", map[string]string{"fairway.dev/run-fairway": "true"}, nil},
		{"node-by-node", "fairway.dev/proxy NotIn [fairway]", map[string]string{"fairway.dev/proxy": "fairway"}, map[string]string{"fairway.dev/proxy": "kube-proxy"}},
		{"kubeadm", "fairway.dev/run-kube-proxy Exists []", nil, map[string]string{"fairway.dev/proxy": "kube-proxy"}},
		{"kubeadm-back", "", map[string]string{"fairway.dev/run-fairway": "true"}, nil},
	} {
		for _, o := range build(t, step.folder) {
			if d, ok := o.(*appsv1.DaemonSet); ok {
				apply(ctx, t, client, step.folder, d)
			}
		}
		pod := podOf(ctx, t, client, "kube-proxy")
		if got := affinity(&pod); got != step.proxy {
			t.Errorf("%s: kube-proxy runs where %q, want %q", step.folder, got, step.proxy)
		}
		if step.folder == "kubeadm-back" && !reflect.DeepEqual(pod, original) {
			t.Errorf("kube-proxy came back as %+v, was %+v", pod, original)
		}
		if got := without(podOf(ctx, t, client, "fairway").NodeSelector, original.NodeSelector); !reflect.DeepEqual(got, step.fairway) {
			t.Errorf("%s: Fairway runs where %v, want %v", step.folder, got, step.fairway)
		}
		if i == 0 {
			continue
		}
		if got := without(podOf(ctx, t, client, "fairway-cleanup").NodeSelector, original.NodeSelector); !reflect.DeepEqual(got, step.cleanup) {
			t.Errorf("%s: cleaned up is where %v, want %v", step.folder, got, step.cleanup)
		}
	}
}

// affinity is what a pod asks of its node's labels.
func affinity(pod *corev1.PodSpec) string {
	if pod.Affinity == nil {
		return ""
	}
	var list []string
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			list = append(list, fmt.Sprint(e.Key, " ", e.Operator, " ", e.Values))
		}
	}
	return strings.Join(list, ", ")
}

// apply applies what the folder says of a DaemonSet, and nothing that only Go's
// types say.
func apply(ctx context.Context, t *testing.T, client kubernetes.Interface, folder string, d *appsv1.DaemonSet) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.Resources() {
		if r.GetKind() != "DaemonSet" || r.GetName() != d.Name {
			continue
		}
		text, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.AppsV1().DaemonSets(d.Namespace).Patch(ctx, d.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "fairway"})
		if err != nil {
			t.Fatalf("apply %s: %v", folder, err)
		}
	}
}

func podOf(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) corev1.PodSpec {
	t.Helper()
	d, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec
}

// without is a map without what another one has; nil if nothing is left.
func without(m, other map[string]string) (rest map[string]string) {
	for k, v := range m {
		if other[k] != v {
			if rest == nil {
				rest = map[string]string{}
			}
			rest[k] = v
		}
	}
	return rest
}

// TestOwnAPIAccepts: Fairway's own API server takes those kinds that it knows.
func TestOwnAPIAccepts(t *testing.T) {
	served := apiserver.DefaultConfig()
	served.DataDir, served.Port = t.TempDir(), 0
	server, err := apiserver.Start(t.Context(), served)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(server.LoopbackConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	objects := build(t, "base")
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	account, configMap := find[corev1.ServiceAccount](objects, "fairway"), find[corev1.ConfigMap](objects, "fairway")
	if _, err := client.CoreV1().ServiceAccounts("kube-system").Create(ctx, account, strict); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().ConfigMaps("kube-system").Create(ctx, configMap, strict); err != nil {
		t.Error(err)
	}
	t.Run("Addresses", func(t *testing.T) { testAddressRights(t, server.LoopbackConfig()) })
	t.Run("Gateway", func(t *testing.T) { testGatewayRights(t, server.LoopbackConfig()) })
}
