package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestProxy: `kubectl get --raw` reaches Pods and Services, by names and numbers of
// ports, over http and https, and nothing that isn't theirs; what users show the API
// server stays there.
func TestProxy(t *testing.T) {
	const address = "198.51.100.77"
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "address", "delete", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
			t.Errorf("ip: %v: %s", err, out)
		}
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintf(w, "%s %s auth=%q cookie=%q", req.Method, req.URL.RequestURI(), req.Header.Get("Authorization"), req.Header.Get("Cookie"))
	})
	ports := map[string]int32{}
	for _, scheme := range []string{"http", "https"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
		if scheme == "https" {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		ports[scheme] = int32(l.Addr().(*net.TCPAddr).Port)
	}
	s := sharedServer(t)
	core := client(t, s).CoreV1()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: ports["http"]}}}}}}
	pod, err := core.Pods("default").Create(within(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	if pod, err = core.Pods("default").UpdateStatus(within(t), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Services("default").Create(within(t), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "plain", Port: 80}, {Name: "secure", Port: 443}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("plain"), Port: ptr.To(ports["http"])}, {Name: ptr.To("secure"), Port: ptr.To(ports["https"])}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
	if _, err := client(t, s).DiscoveryV1().EndpointSlices("default").Create(within(t), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (string, error) {
		data, err := core.RESTClient().Get().RequestURI("/api/v1/namespaces/default/"+path).SetHeader("Cookie", "a=b").DoRaw(within(t))
		return string(data), err
	}
	for path, want := range map[string]string{
		"pods/p/proxy/x/y?a=b": "GET /x/y?a=b", "pods/p:web/proxy/": "GET / ", "pods/http:p:" + strconv.Itoa(int(ports["http"])) + "/proxy/z": "GET /z ",
		"pods/https:p:" + strconv.Itoa(int(ports["https"])) + "/proxy/s": "GET /s ", "services/web:plain/proxy/q": "GET /q ", "services/web:80/proxy/q": "GET /q ", "services/https:web:secure/proxy/q": "GET /q ",
	} {
		eventually(t, path+" is answered", func() bool { // the cache learns of the slice a moment later
			got, err := get(path)
			if err != nil || !strings.HasPrefix(got, want) {
				t.Log(path, got, err)
				return false
			}
			if !strings.Contains(got, `auth="" cookie="a=b"`) {
				t.Errorf("%s: %s", path, got)
			}
			return true
		})
	}
	if got, err := core.RESTClient().Post().AbsPath("/api/v1/namespaces/default/pods/p:web/proxy/post").Body([]byte("x")).DoRaw(within(t)); err != nil || !strings.HasPrefix(string(got), "POST /post") {
		t.Errorf("POST: %s, %v", got, err)
	}
	for _, own := range []string{"127.0.0.1", "169.254.169.254"} {
		pod.Status.PodIP, pod.Status.PodIPs = own, []corev1.PodIP{{IP: own}}
		if pod, err = core.Pods("default").UpdateStatus(within(t), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, err := get("pods/p:6443/proxy/"); !apierrors.IsBadRequest(err) {
			t.Errorf("a Pod that says it is at %s: %s, %v", own, got, err)
		}
	}
	node, err := s.Kubeconfig("jane")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfigClient(t, node).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/services/web:plain/proxy/").DoRaw(within(t)); !apierrors.IsForbidden(err) {
		t.Errorf("without rights: %v", err)
	}
}
