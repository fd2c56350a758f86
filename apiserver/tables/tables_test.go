package tables

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// print returns a table's cells, row by row; wide columns come after "|".
func print(t *testing.T, c rest.TableConvertor, obj runtime.Object) string {
	t.Helper()
	table, err := c.ConvertToTable(t.Context(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range table.Rows {
		var cells []string
		wide := false
		for i, cell := range r.Cells {
			if !wide && table.ColumnDefinitions[i].Priority > 0 {
				wide = true
				cells = append(cells, "|")
			}
			cells = append(cells, fmt.Sprint(cell))
		}
		rows = append(rows, strings.Join(cells, " "))
	}
	return strings.Join(rows, "\n")
}

func TestServices(t *testing.T) {
	s := func(typ corev1.ServiceType, change func(*corev1.Service)) corev1.Service {
		svc := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.ServiceSpec{Type: typ, ClusterIPs: []string{"10.96.0.2"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}},
		}
		change(&svc)
		return svc
	}
	list := &corev1.ServiceList{Items: []corev1.Service{
		s("ClusterIP", func(*corev1.Service) {}),
		s("ClusterIP", func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.Ports, s.Spec.Selector = []string{"None"}, nil, map[string]string{"a": "b", "c": "d"}
		}),
		s("NodePort", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30001
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, Protocol: "UDP"})
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
		}),
		s("LoadBalancer", func(*corev1.Service) {}),
		s("LoadBalancer", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}, {Hostname: "lb.example.com"}}
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
		}),
		s("ExternalName", func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.Ports, s.Spec.ExternalName = nil, nil, "example.com"
		}),
	}}
	want := `web ClusterIP 10.96.0.2 <none> 80/TCP <unknown> | <none>
web ClusterIP None <none> <none> <unknown> | a=b,c=d
web NodePort 10.96.0.2 192.0.2.1 80:30001/TCP,53/UDP <unknown> | <none>
web LoadBalancer 10.96.0.2 <pending> 80/TCP <unknown> | <none>
web LoadBalancer 10.96.0.2 192.0.2.2,lb.example.com,192.0.2.1 80/TCP <unknown> | <none>
web ExternalName <none> example.com <none> <unknown> | <none>`
	if got := print(t, Services(), list); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestPods(t *testing.T) {
	now := metav1.Now()
	always, yes := corev1.ContainerRestartPolicyAlways, true
	crashing := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	running := corev1.ContainerStatus{Ready: true, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	for _, test := range []struct {
		change func(*corev1.Pod)
		want   string
	}{
		{func(*corev1.Pod) {}, "p 0/1 Pending 0 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Status.Phase, p.Spec.NodeName, p.Status.PodIP = corev1.PodRunning, "n1", "10.244.1.2"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{running}
		}, "p 1/1 Running 2 <unknown> | 10.244.1.2 n1 <none> <none>"},
		{func(p *corev1.Pod) {
			p.DeletionTimestamp = &now
			p.Status.ContainerStatuses = []corev1.ContainerStatus{running}
		}, "p 1/1 Terminating 2 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}, "p 0/1 CrashLoopBackOff 0 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
		}, "p 0/1 ExitCode:3 0 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}
			p.Status.Conditions = []corev1.PodCondition{{Type: "a", Status: corev1.ConditionTrue}}
		}, "p 0/1 Pending 0 <unknown> | <none> <none> <none> 1/2"},
		{func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1, State: crashing}, {}}
		}, "p 0/2 Init:CrashLoopBackOff 1 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1, State: done}, {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}, "p 0/2 Init:1/2 1 <unknown> | <none> <none> <none> <none>"},
		{func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
			sidecar, again := running, running
			sidecar.Started, sidecar.RestartCount = &yes, 1
			again.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-3 * time.Hour))}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{RestartCount: 5, State: done}, sidecar}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{again}
		}, "p 2/2 Running 3 (3h ago) <unknown> | <none> <none> <none> <none>"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		p.Status.Phase = corev1.PodPending
		test.change(p)
		if got := print(t, Pods(), p); got != test.want {
			t.Errorf("%s\nwant\n%s", got, test.want)
		}
	}
}

func TestEndpointSlices(t *testing.T) {
	port := int32(80)
	e := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port}, {}},
	}
	for i := range 5 {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i)}})
	}
	if got, want := print(t, EndpointSlices(), e), "web IPv4 80,* 10.0.0.0,10.0.0.1,10.0.0.2 + 2 more... <unknown>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := print(t, EndpointSlices(), &discoveryv1.EndpointSlice{AddressType: "IPv6"}), " IPv6 <unset> <unset> <unknown>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestRowsFitColumns: each convertor gives as many cells as it has columns,
// for an object of which nothing is known.
func TestRowsFitColumns(t *testing.T) {
	for _, test := range []struct {
		c   rest.TableConvertor
		obj runtime.Object
	}{
		{Nodes(), &corev1.Node{}}, {Namespaces(), &corev1.Namespace{}}, {ConfigMaps(), &corev1.ConfigMap{}}, {Secrets(), &corev1.Secret{}},
		{Events(), &corev1.Event{}}, {ServiceAccounts(), &corev1.ServiceAccount{}}, {Endpoints(), &corev1.Endpoints{}},
	} {
		print(t, test.c, test.obj)
	}
}
