package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// contents are a Service with an endpoint, whose pod and node have secrets.
func contents() *Contents {
	applied := map[string]string{corev1.LastAppliedConfigAnnotation: "hunter2", "fairway.dev/weight": "3"}
	return &Contents{
		About: About{Version: "v1", Time: time.Unix(1e9, 0).UTC()},
		Objects: &explain.Objects{
			Services: []*corev1.Service{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: applied},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00:10::7"}},
			}},
			Slices: []*discoveryv1.EndpointSlice{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.9"}}},
			}},
			Pods: []*corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Annotations: applied},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Args: []string{"--password=hunter2"}, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}},
					LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ping", "-phunter2"}}}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2"}}}}},
					Lifecycle:      &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"-phunter2"}}}},
				}}},
				Status: corev1.PodStatus{PodIP: "203.0.113.9"},
			}},
			NoPolicies: "forbidden",
		},
		Survey: doctor.NewSurvey(),
		Nodes: []Node{{
			Name: "n1", Status: &agentlink.Status{Node: "n1", Mode: "ebpf"}, Log: "connected to 203.0.113.9:80 and [2001:db8::9]:80\n",
			Kernel: &dump.Report{Mode: "ebpf", Lines: []dump.Line{{Kind: "element", Name: "203.0.113.9:80", State: "missing"}}},
		}},
	}
}

func written(t *testing.T, mask *Mask) []byte {
	t.Helper()
	var archive bytes.Buffer
	if err := contents().Write(&archive, mask); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// texts are the archive's files, one after the other.
func texts(t *testing.T, archive []byte) string {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for files := tar.NewReader(zipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("== " + header.Name + "\n")
		if _, err := io.Copy(&all, files); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadBack: what is written is read again, and reads as it did.
func TestReadBack(t *testing.T) {
	c, err := read(bytes.NewReader(written(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	want := contents()
	if len(c.Objects.Services) != 1 || c.Objects.Services[0].Spec.ClusterIP != "10.96.0.7" || c.Objects.NoPolicies != want.Objects.NoPolicies {
		t.Errorf("objects are %+v", c.Objects)
	}
	if len(c.Nodes) != 1 || c.Nodes[0].Status.Mode != "ebpf" || len(c.Nodes[0].Kernel.Differences()) != 1 {
		t.Errorf("nodes are %+v", c.Nodes)
	}
	if c.About.Version != "v1" || !c.About.Time.Equal(want.About.Time) {
		t.Errorf("it is of %+v", c.About)
	}
	if c.Objects.Services[0].Annotations["fairway.dev/weight"] != "3" {
		t.Error("annotations that have an effect are lost")
	}
}

// TestSecrets: values that may be secrets are nowhere in the archive.
func TestSecrets(t *testing.T) {
	if all := texts(t, written(t, nil)); strings.Contains(all, "hunter2") {
		t.Errorf("a secret leaves the cluster:\n%s", all)
	}
}

// TestMask: addresses of choice are nowhere, each is another one everywhere, and others stay.
func TestMask(t *testing.T) {
	mask := &Mask{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/64")}}
	archive := written(t, mask)
	all := texts(t, archive)
	for _, address := range []string{"203.0.113.9", "2001:db8::9"} {
		if strings.Contains(all, address) {
			t.Errorf("%s leaves the cluster", address)
		}
	}
	c, err := read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if is := c.Objects.Slices[0].Endpoints[0].Addresses[0]; is != "198.18.0.1" || c.Objects.Pods[0].Status.PodIP != is {
		t.Errorf("the endpoint is %s, its pod %s", is, c.Objects.Pods[0].Status.PodIP)
	}
	if c.Objects.Services[0].Spec.ClusterIPs[1] != "fd00:10::7" || !strings.Contains(all, "[2001:db8:fa17::1]:80") {
		t.Errorf("other addresses didn't stay, or were lost:\n%s", all)
	}
}

// TestNoBundle: what isn't one is refused with the reason.
func TestNoBundle(t *testing.T) {
	whole := written(t, nil)
	var empty bytes.Buffer
	zipped := gzip.NewWriter(&empty)
	if err := errors.Join(tar.NewWriter(zipped).Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	for name, archive := range map[string][]byte{"text": []byte("no archive"), "half": whole[:len(whole)/2], "empty": empty.Bytes()} {
		if c, err := read(bytes.NewReader(archive)); err == nil {
			t.Errorf("%s: read as %+v", name, c)
		}
	}
}

// TestTables: of a node without an API, explain's objects are what it had in force, also elsewhere.
func TestTables(t *testing.T) {
	c := contents()
	e := model.NewTable().Edit()
	pool := model.PoolID{Name: "shop/web:http"}
	e.SetSettings(&model.Settings{NodeAddrs: []netip.Addr{netip.MustParseAddr("203.0.113.1")}})
	e.SetPool(&model.Pool{ID: pool, Backends: []model.Backend{{Addr: netip.MustParseAddr("203.0.113.9"), Port: 80, Local: true}}})
	e.SetFrontend(&model.Frontend{
		Key: model.Key{Addr: netip.MustParseAddr("10.96.0.7"), Port: 80, Proto: model.TCP}, Name: "shop/web:http",
		Routes: [3]model.Route{{Pool: pool}, {Pool: pool}, {Pool: pool}},
	})
	c.Nodes[0].Table = e.Table()
	c.Objects = explain.InForce(map[string]*model.Table{"n1": c.Nodes[0].Table}, nil, "connection refused")
	var archive bytes.Buffer
	if err := c.Write(&archive, &Mask{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}); err != nil {
		t.Fatal(err)
	}
	got, err := read(&archive)
	if err != nil {
		t.Fatal(err)
	}
	q, err := explain.ParseQuestion("svc/web", "", "shop")
	if err != nil {
		t.Fatal(err)
	}
	r, err := explain.FromObjects(q, got.Objects, compile.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != explain.OutcomeForwarded || len(r.Endpoints) != 1 || r.Endpoints[0].Node != "n1" || !strings.HasPrefix(r.Endpoints[0].Addr.String(), "198.18.") {
		t.Errorf("%s: %s, endpoints %+v", r.Outcome, r.Answer, r.Endpoints)
	}
}

// TestTableOfNulls: a stranger's table doesn't end the program.
func TestTableOfNulls(t *testing.T) {
	c := &Contents{}
	if err := c.take("nodes/n1/table.json", json.NewDecoder(strings.NewReader(`{"Frontends": [null]}`))); err == nil {
		t.Error("a frontend that is null was taken")
	}
}
