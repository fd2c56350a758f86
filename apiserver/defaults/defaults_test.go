package defaults

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// fill reads a manifest, fills in its defaults and writes it as YAML. Doing
// so twice must change nothing: stored objects are defaulted again when read.
func fill[T any](t *testing.T, def func(*T), manifest string) string {
	t.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(manifest), &obj); err != nil {
		t.Fatal(err)
	}
	write := func() string {
		def(&obj)
		out, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	once := write()
	if again := write(); again != once {
		t.Errorf("defaulted twice:\n%s\nonce:\n%s", again, once)
	}
	return once
}

func TestService(t *testing.T) {
	for _, test := range []struct{ name, spec, want string }{
		{"ClusterIP", "{ports: [{port: 80}]}", `spec:
  internalTrafficPolicy: Cluster
  ports:
  - port: 80
    protocol: TCP
    targetPort: 80
  sessionAffinity: None
  type: ClusterIP
`},
		{"NodePort", "{type: NodePort, ports: [{port: 80, targetPort: web, protocol: UDP}]}", `spec:
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ports:
  - port: 80
    protocol: UDP
    targetPort: web
  sessionAffinity: None
  type: NodePort
`},
		{"LoadBalancer", "{type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP}", `spec:
  allocateLoadBalancerNodePorts: true
  externalTrafficPolicy: Local
  internalTrafficPolicy: Cluster
  sessionAffinity: ClientIP
  sessionAffinityConfig:
    clientIP:
      timeoutSeconds: 10800
  type: LoadBalancer
`},
		{"ExternalName", "{type: ExternalName, externalName: a.b}", `spec:
  externalName: a.b
  sessionAffinity: None
  type: ExternalName
`},
		{"external IPs", "{externalIPs: [192.0.2.1]}", `spec:
  externalIPs:
  - 192.0.2.1
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  sessionAffinity: None
  type: ClusterIP
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := "metadata: {}\n" + test.want + "status:\n  loadBalancer: {}\n"
			if got := fill(t, Service, "spec: "+test.spec); got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestLoadBalancerMode(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "a.b"}}
	Service(s)
	in := s.Status.LoadBalancer.Ingress
	if in[0].IPMode == nil || *in[0].IPMode != corev1.LoadBalancerIPModeVIP || in[1].IPMode != nil {
		t.Errorf("modes %v and %v, want VIP and none", in[0].IPMode, in[1].IPMode)
	}
}

func TestPod(t *testing.T) {
	got := fill(t, Pod, `spec: {hostNetwork: true, containers: [{name: a, image: "registry:5000/echo", ports: [{containerPort: 80}],
  readinessProbe: {httpGet: {port: 80}}, resources: {limits: {cpu: "1"}}}, {name: b, image: "echo:1"}]}`)
	want := `metadata: {}
spec:
  containers:
  - image: registry:5000/echo
    imagePullPolicy: Always
    name: a
    ports:
    - containerPort: 80
      hostPort: 80
      protocol: TCP
    readinessProbe:
      failureThreshold: 3
      httpGet:
        path: /
        port: 80
        scheme: HTTP
      periodSeconds: 10
      successThreshold: 1
      timeoutSeconds: 1
    resources:
      limits:
        cpu: "1"
      requests:
        cpu: "1"
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  - image: echo:1
    imagePullPolicy: IfNotPresent
    name: b
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  hostNetwork: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  terminationGracePeriodSeconds: 30
status: {}
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"echo": corev1.PullAlways, "echo:latest": corev1.PullAlways, "echo:1": corev1.PullIfNotPresent,
		"host:5000/echo": corev1.PullAlways, "host:5000/echo:2": corev1.PullIfNotPresent, "echo@sha256:00": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("pull policy of %s: %s, want %s", image, got, want)
		}
	}
}

func TestDeployment(t *testing.T) {
	d := &appsv1.Deployment{}
	Deployment(d)
	s := d.Spec
	if *s.Replicas != 1 || s.Strategy.RollingUpdate.MaxSurge.StrVal != "25%" || s.Strategy.RollingUpdate.MaxUnavailable.StrVal != "25%" ||
		*s.RevisionHistoryLimit != 10 || *s.ProgressDeadlineSeconds != 600 || s.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("defaults %v", s)
	}
	d = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}}
	Deployment(d)
	if d.Spec.Strategy.RollingUpdate != nil {
		t.Error("a Recreate strategy gets rolling-update parameters")
	}
}

func TestOthers(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{}}}
	EndpointSlice(slice)
	if *slice.Ports[0].Name != "" || *slice.Ports[0].Protocol != corev1.ProtocolTCP || slice.Ports[0].Port != nil {
		t.Errorf("port %v", slice.Ports[0])
	}
	ns := &corev1.Namespace{}
	ns.Name = "a"
	Namespace(ns)
	if ns.Labels[corev1.LabelMetadataName] != "a" {
		t.Errorf("labels %v", ns.Labels)
	}
	node := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"pods": resource.MustParse("110")}}}
	Node(node)
	if q := node.Status.Allocatable["pods"]; q.Value() != 110 {
		t.Errorf("allocatable %v", node.Status.Allocatable)
	}
}
