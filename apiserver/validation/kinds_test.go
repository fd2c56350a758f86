package validation

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/apiserver/defaults"
)

func read[T any](t *testing.T, manifest string, def func(*T)) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatal(err)
	}
	if def != nil {
		def(obj)
	}
	return obj
}

// cases are manifests and the errors they get.
type cases map[string][]string

func check[T any](t *testing.T, list cases, def func(*T), validate func(*T) field.ErrorList) {
	t.Helper()
	for manifest, want := range list {
		t.Run(manifest, func(t *testing.T) { compare(t, validate(read(t, manifest, def)), want...) })
	}
}

func TestPods(t *testing.T) {
	check(t, cases{
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}}": nil,
		"{metadata: {name: a, namespace: b}}":                                                                 {"spec.containers: Required value"},
		"{metadata: {name: A, namespace: b}, spec: {containers: [{name: c, image: i}]}}":                      {`metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: C_, image: i}]}}":                     {`spec.containers[0].name: Invalid value: "C_": a lowercase RFC 1123 label`},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c}]}}":                                {"spec.containers[0].image: Required value"},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i}, {name: c, image: i}]}}": {`spec.containers[1].name: Duplicate value: "c"`},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 70000}]}]}}": {
			"spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}, {name: http, containerPort: 81}]}]}}": {
			`spec.containers[0].ports[1].name: Duplicate value: "http"`},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, ports: [{name: too-long-a-port-name, containerPort: 80}]}]}}": {
			`spec.containers[0].ports[0].name: Invalid value: "too-long-a-port-name": must be no more than 15 characters`},
		"{metadata: {name: a, namespace: b}, spec: {hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 81}]}]}}": {
			"spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 81}]}, {name: d, image: i, ports: [{containerPort: 80, hostPort: 81}]}]}}": {
			"spec.containers[1].ports[0].hostPort: Duplicate value: 81"},
		"{metadata: {name: a, namespace: b}, spec: {restartPolicy: Sometimes, containers: [{name: c, image: i}]}}": {
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"`},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, readinessProbe: {}}]}}": {
			"spec.containers[0].readinessProbe: Required value: must specify a handler type"},
		"{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i, readinessProbe: {tcpSocket: {port: 0}}}]}}": {
			"spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: 0"},
		"{metadata: {name: a, namespace: b}, spec: {nodeName: 'a b', containers: [{name: c, image: i}]}}": {`spec.nodeName: Invalid value: "a b"`},
	}, defaults.Pod, Pod)
}

func TestPodUpdate(t *testing.T) {
	old := read(t, "{metadata: {name: a, namespace: b}, spec: {containers: [{name: c, image: i}]}}", defaults.Pod)
	p := old.DeepCopy()
	p.Spec.Containers[0].Image = "j"
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "a"})
	compare(t, PodUpdate(p, old))
	p.Spec.NodeName = "n"
	compare(t, PodUpdate(p, old), "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`")
}

func TestDeployments(t *testing.T) {
	const template = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
	check(t, cases{
		"{metadata: {name: a, namespace: b}, spec: {selector: {matchLabels: {a: b}}, " + template + "}}": nil,
		"{metadata: {name: a, namespace: b}, spec: {" + template + "}}":                                  {"spec.selector: Required value"},
		"{metadata: {name: a, namespace: b}, spec: {selector: {}, " + template + "}}":                    {"spec.selector: Invalid value: {}: empty selector is invalid for deployment"},
		"{metadata: {name: a, namespace: b}, spec: {selector: {matchLabels: {a: c}}, " + template + "}}": {
			"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"},
		"{metadata: {name: a, namespace: b}, spec: {replicas: -1, selector: {matchLabels: {a: b}}, " + template + "}}": {
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		"{metadata: {name: a, namespace: b}, spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}, selector: {matchLabels: {a: b}}, " + template + "}}": {
			"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"},
		"{metadata: {name: a, namespace: b}, spec: {strategy: {rollingUpdate: {maxUnavailable: 120%}}, selector: {matchLabels: {a: b}}, " + template + "}}": {
			`spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "120%": must not be greater than 100%`},
		"{metadata: {name: a, namespace: b}, spec: {strategy: {type: Recreate, rollingUpdate: {}}, selector: {matchLabels: {a: b}}, " + template + "}}": {
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"},
	}, defaults.Deployment, Deployment)
	old := read(t, "{spec: {selector: {matchLabels: {a: b}}}}", func(*appsv1.Deployment) {})
	changed := read(t, "{spec: {selector: {matchLabels: {a: c}}}}", func(*appsv1.Deployment) {})
	compare(t, DeploymentUpdate(changed, old), `spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable`)
}

func TestNodes(t *testing.T) {
	check(t, cases{
		"{metadata: {name: n1}, spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24, 'fd00::/64']}}": nil,
		"{metadata: {name: N1}}":                        {`metadata.name: Invalid value: "N1"`},
		"{metadata: {name: n1}, spec: {podCIDRs: [x]}}": {`spec.podCIDRs[0]: Invalid value: "x": must be a valid CIDR value`},
		"{metadata: {name: n1}, spec: {podCIDRs: [10.0.0.0/24, 10.0.1.0/24]}}": {
			`spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family`},
		"{metadata: {name: n1}, spec: {podCIDR: 10.0.1.0/24, podCIDRs: [10.0.0.0/24]}}": {"spec.podCIDRs[0]: Invalid value: \"10.0.0.0/24\": must match `podCIDR`"},
		"{metadata: {name: n1}, spec: {taints: [{key: a, effect: Never}]}}":             {`spec.taints[0].effect: Unsupported value: "Never"`},
		"{metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: x}]}}": {`status.addresses[0].address: Invalid value: "x": must be a valid IP address`},
	}, defaults.Node, Node)
	old := read(t, "{spec: {podCIDRs: [10.0.0.0/24]}}", func(*corev1.Node) {})
	changed := read(t, "{spec: {podCIDRs: [10.0.1.0/24]}}", func(*corev1.Node) {})
	compare(t, NodeUpdate(changed, old), "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid")
}

func TestIngresses(t *testing.T) {
	const backend = "backend: {service: {name: web, port: {number: 80}}}"
	check(t, cases{
		"{metadata: {name: a, namespace: b}, spec: {rules: [{host: '*.example.com', http: {paths: [{path: /, pathType: Prefix, " + backend + "}]}}]}}": nil,
		"{metadata: {name: a, namespace: b}}":                                     {"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"},
		"{metadata: {name: a, namespace: b}, spec: {rules: [{host: 192.0.2.1}]}}": {`spec.rules[0].host: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`},
		"{metadata: {name: a, namespace: b}, spec: {rules: [{http: {paths: [{path: /, " + backend + "}]}}]}}": {
			"spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"},
		"{metadata: {name: a, namespace: b}, spec: {rules: [{http: {paths: [{path: a, pathType: Exact, " + backend + "}]}}]}}": {
			`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`},
		"{metadata: {name: a, namespace: b}, spec: {rules: [{http: {paths: [{path: /a//b, pathType: Exact, " + backend + "}]}}]}}": {
			`spec.rules[0].http.paths[0].path: Invalid value: "/a//b": must not contain '//'`},
		"{metadata: {name: a, namespace: b}, spec: {defaultBackend: {service: {name: web}}}}": {"spec.defaultBackend: Required value: port name or number is required"},
	}, func(*networkingv1.Ingress) {}, Ingress)
}

func TestDataKinds(t *testing.T) {
	check(t, cases{
		"{metadata: {name: a, namespace: b}, data: {k.v: x}}":                      nil,
		"{metadata: {name: a, namespace: b}, data: {'a b': x}}":                    {`data[a b]: Invalid value: "a b": a valid config key must consist of`},
		"{metadata: {name: a, namespace: b}, data: {k: x}, binaryData: {k: eA==}}": {`data[k]: Invalid value: "k": duplicate of key present in binaryData`},
	}, func(*corev1.ConfigMap) {}, ConfigMap)
	frozen := read(t, "{immutable: true, data: {a: b}}", func(*corev1.ConfigMap) {})
	changed := read(t, "{immutable: true, data: {a: c}}", func(*corev1.ConfigMap) {})
	compare(t, ConfigMapUpdate(changed, frozen), "data: Forbidden: field is immutable when `immutable` is set")
	check(t, cases{
		"{metadata: {name: a, namespace: b}, data: {k: eA==}}":                                                                                 nil,
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/tls, data: {tls.crt: eA==}}":                                                  {"data[tls.key]: Required value"},
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/service-account-token}":                                                       {"metadata.annotations[kubernetes.io/service-account.name]: Required value"},
		"{metadata: {name: a, namespace: b, annotations: {kubernetes.io/service-account.name: c}}, type: kubernetes.io/service-account-token}": nil,
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/ssh-auth}":                                                                    {"data[ssh-privatekey]: Required value"},
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/basic-auth, data: {password: eA==}}":                                          nil,
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/basic-auth}": {
			"data[username]: Required value", "data[password]: Required value"},
		"{metadata: {name: a, namespace: b}, type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: eA==}}": {
			`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be JSON`},
	}, defaults.Secret, Secret)
	compare(t, SecretUpdate(read(t, "{type: b}", func(*corev1.Secret) {}), read(t, "{type: a}", func(*corev1.Secret) {})),
		`type: Invalid value: "b": field is immutable`)
	check(t, cases{
		"{metadata: {name: a, namespace: b}, involvedObject: {namespace: b}}": nil,
		"{metadata: {name: a, namespace: default}}":                           nil,
		"{metadata: {name: a, namespace: b}, involvedObject: {namespace: c}}": {`involvedObject.namespace: Invalid value: "c": does not match event.namespace "b"`},
	}, func(*corev1.Event) {}, Event)
	check(t, cases{
		"{metadata: {name: a}}":   nil,
		"{metadata: {name: A}}":   {`metadata.name: Invalid value: "A"`},
		"{metadata: {name: a.b}}": {`metadata.name: Invalid value: "a.b"`},
	}, func(*corev1.Namespace) {}, Namespace)
}
