package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairway-net/fairway/apiserver/defaults"
)

// service returns a valid Service of a type, changed.
func service(typ corev1.ServiceType, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Type: typ, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if typ == corev1.ServiceTypeExternalName {
		s.Spec.ExternalName, s.Spec.Ports = "example.com", nil
	}
	defaults.Service(s)
	if change != nil {
		change(s)
	}
	return s
}

// compare wants exactly these errors; what is wanted may be their beginnings.
func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("unexpected error %q", got[i])
		case i >= len(got):
			t.Errorf("no error, want %q", want[i])
		case !strings.HasPrefix(got[i], want[i]):
			t.Errorf("error %q, want %q", got[i], want[i])
		}
	}
}

const (
	clusterIP    = corev1.ServiceTypeClusterIP
	nodePort     = corev1.ServiceTypeNodePort
	balancer     = corev1.ServiceTypeLoadBalancer
	externalType = corev1.ServiceTypeExternalName
)

func set[T any](value T) *T { return &value }

func TestService(t *testing.T) {
	for _, test := range []struct {
		name   string
		typ    corev1.ServiceType
		change func(*corev1.Service)
		want   []string
	}{
		{"ClusterIP", clusterIP, nil, nil},
		{"NodePort", nodePort, nil, nil},
		{"LoadBalancer", balancer, nil, nil},
		{"ExternalName", externalType, nil, nil},
		{"unknown type", clusterIP, func(s *corev1.Service) { s.Spec.Type = "Magic" },
			[]string{"spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""}},

		{"name with capitals", clusterIP, func(s *corev1.Service) { s.Name = "HelloService" },
			[]string{`metadata.name: Invalid value: "HelloService": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'`}},
		{"name begins with a digit", clusterIP, func(s *corev1.Service) { s.Name = "1web" }, nil},
		{"name ends with a hyphen", clusterIP, func(s *corev1.Service) { s.Name = "web-" }, []string{`metadata.name: Invalid value: "web-": a lowercase RFC 1123 label`}},
		{"name too long", clusterIP, func(s *corev1.Service) { s.Name = strings.Repeat("a", 64) },
			[]string{`metadata.name: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63 characters`}},
		{"bad label", clusterIP, func(s *corev1.Service) { s.Labels = map[string]string{"a": "b c"} }, []string{`metadata.labels: Invalid value: "b c"`}},

		{"no ports", clusterIP, func(s *corev1.Service) { s.Spec.Ports = nil }, []string{"spec.ports: Required value"}},
		{"port 0", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].Port = 0 }, []string{"spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		{"port 65536", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].Port = 65536 }, []string{"spec.ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"}},
		{"unknown protocol", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = "ICMP" },
			[]string{`spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`}},
		{"target port 0", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(0) }, []string{"spec.ports[0].targetPort: Invalid value: 0"}},
		{"target port name", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("HTTP") },
			[]string{`spec.ports[0].targetPort: Invalid value: "HTTP": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`, `spec.ports[0].targetPort: Invalid value: "HTTP": must contain at least one letter (a-z)`}},
		{"app protocol", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = set("a b") }, []string{`spec.ports[0].appProtocol: Invalid value: "a b"`}},
		{"several ports without names", clusterIP, func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 81, Protocol: "TCP", TargetPort: intstr.FromInt32(81)})
		}, []string{"spec.ports[0].name: Required value", "spec.ports[1].name: Required value"}},
		{"one name twice", clusterIP, func(s *corev1.Service) {
			s.Spec.Ports[0].Name = "a"
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "a", Port: 81, Protocol: "TCP", TargetPort: intstr.FromInt32(81)})
		}, []string{`spec.ports[1].name: Duplicate value: "a"`}},
		{"bad port name", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].Name = "A_b" }, []string{`spec.ports[0].name: Invalid value: "A_b": a lowercase RFC 1123 label`}},
		{"one port twice", clusterIP, func(s *corev1.Service) {
			s.Spec.Ports[0].Name = "a"
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "b", Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(81)})
		}, []string{"spec.ports[1]: Duplicate value"}},
		{"one port, two protocols", clusterIP, func(s *corev1.Service) {
			s.Spec.Ports[0].Name = "a"
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "b", Port: 80, Protocol: "UDP", TargetPort: intstr.FromInt32(81)})
		}, nil},
		{"one node port twice", nodePort, func(s *corev1.Service) {
			s.Spec.Ports[0].Name, s.Spec.Ports[0].NodePort = "a", 30000
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "b", Port: 81, Protocol: "TCP", TargetPort: intstr.FromInt32(81), NodePort: 30000})
		}, []string{"spec.ports[1].nodePort: Duplicate value: 30000"}},
		{"node port on ClusterIP", clusterIP, func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 },
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{"the kubelet's port", balancer, func(s *corev1.Service) { s.Spec.Ports[0].Port = 10250 },
			[]string{"spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet"}},
		{"bad selector", clusterIP, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a b": "c"} }, []string{`spec.selector: Invalid value: "a b"`}},

		{"headless", clusterIP, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }, nil},
		{"headless without ports", clusterIP, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports = "None", []string{"None"}, nil
		}, nil},
		{"headless NodePort", nodePort, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			[]string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		{"headless LoadBalancer", balancer, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			[]string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for LoadBalancer services`}},
		{"None and an address", clusterIP, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None", "10.0.0.1"} },
			[]string{`spec.clusterIPs: Invalid value: ["None","10.0.0.1"]: 'None' must be the first and only value`}},
		{"not an address", clusterIP, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "x", []string{"x"} },
			[]string{`spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{"IP and IPs differ", clusterIP, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.2"} },
			[]string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"}},
		{"IPs without IP", clusterIP, func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.0.0.2"} },
			[]string{"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: must be empty when `clusterIP` is not specified"}},
		{"two of a family", clusterIP, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "10.0.0.2"}
		},
			[]string{`spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family`}},
		{"three", clusterIP, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "fd00::1", "10.0.0.2"}
		}, []string{`spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","10.0.0.2"]: may only hold up to 2 values`}},
		{"address of another family", clusterIP, func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies = "10.0.0.1", []string{"10.0.0.1"}, []corev1.IPFamily{corev1.IPv6Protocol}
		}, []string{"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"}},
		{"family twice", clusterIP, func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv4"} }, []string{`spec.ipFamilies[1]: Duplicate value: "IPv4"`}},
		{"unknown family", clusterIP, func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv5"} },
			[]string{`spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`}},
		{"unknown policy", clusterIP, func(s *corev1.Service) { s.Spec.IPFamilyPolicy = set(corev1.IPFamilyPolicy("Both")) },
			[]string{`spec.ipFamilyPolicy: Unsupported value: "Both": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`}},

		{"ExternalName without name", externalType, func(s *corev1.Service) { s.Spec.ExternalName = "" }, []string{"spec.externalName: Required value"}},
		{"ExternalName with a dot at the end", externalType, func(s *corev1.Service) { s.Spec.ExternalName = "example.com." }, nil},
		{"ExternalName that isn't one", externalType, func(s *corev1.Service) { s.Spec.ExternalName = "-a-" },
			[]string{`spec.externalName: Invalid value: "-a-": a lowercase RFC 1123 subdomain must consist of`}},
		{"ExternalName with address", externalType, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1"} },
			[]string{"spec.clusterIPs: Forbidden: may not be set for ExternalName services"}},
		{"ExternalName with family", externalType, func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{"IPv4"}, set(corev1.IPFamilyPolicySingleStack)
		}, []string{"spec.ipFamilies: Forbidden: may not be set for ExternalName services", "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services"}},

		{"external IPs", clusterIP, func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"192.0.2.1", "2001:db8::1"}
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}, nil},
		{"special external IPs", balancer, func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"x", "0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "239.1.1.1"}
		}, []string{
			`spec.externalIPs[0]: Invalid value: "x": must be a valid IP address`,
			`spec.externalIPs[1]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
			`spec.externalIPs[2]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`spec.externalIPs[3]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
			`spec.externalIPs[4]: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`,
			`spec.externalIPs[5]: Invalid value: "239.1.1.1": may not be in the multicast range`,
		}},

		{"affinity", clusterIP, func(s *corev1.Service) { affinity(s, set(int32(86400))) }, nil},
		{"unknown affinity", clusterIP, func(s *corev1.Service) { s.Spec.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"`}},
		{"affinity for 0 s", clusterIP, func(s *corev1.Service) { affinity(s, set(int32(0))) },
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"}},
		{"affinity for over a day", clusterIP, func(s *corev1.Service) { affinity(s, set(int32(86401))) },
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"}},
		{"affinity config without affinity", clusterIP, func(s *corev1.Service) {
			affinity(s, set(int32(10)))
			s.Spec.SessionAffinity = corev1.ServiceAffinityNone
		}, []string{"spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None"}},

		{"external policy on ClusterIP", clusterIP, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "Local" },
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{"unknown external policy", nodePort, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "Near" },
			[]string{`spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`}},
		{"unknown internal policy", clusterIP, func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = set(corev1.ServiceInternalTrafficPolicy("Near"))
		},
			[]string{`spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`}},
		{"unknown distribution", clusterIP, func(s *corev1.Service) { s.Spec.TrafficDistribution = set("PreferFar") },
			[]string{`spec.trafficDistribution: Unsupported value: "PreferFar": supported values: "PreferClose", "PreferSameNode", "PreferSameZone"`}},
		{"health check on NodePort", nodePort, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30001 },
			[]string{"spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"}},
		{"health check", balancer, func(s *corev1.Service) { s.Spec.HealthCheckNodePort, s.Spec.ExternalTrafficPolicy = 30001, "Local" }, nil},

		{"source ranges", balancer, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", " 2001:db8::/32 "} }, nil},
		{"bad source range", balancer, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0"} },
			[]string{`spec.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		{"source range that is an address", balancer, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.5/8"} },
			[]string{`spec.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.5/8": must not have bits set beyond the prefix length`}},
		{"annotation with such a one", balancer, func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8, ::ffff:10.0.0.0/104"}
		}, []string{"metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges][1]: Invalid value"}},
		{"source ranges on NodePort", nodePort, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} },
			[]string{"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"source ranges by annotation", balancer, func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8, x"}
		}, []string{"metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges][1]: Invalid value: \"x\""}},
		{"class on NodePort", nodePort, func(s *corev1.Service) { s.Spec.LoadBalancerClass = set("a.com/b") },
			[]string{"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"bad class", balancer, func(s *corev1.Service) { s.Spec.LoadBalancerClass = set("a b") }, []string{`spec.loadBalancerClass: Invalid value: "a b"`}},
		{"allocate on NodePort", nodePort, func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = set(true) },
			[]string{"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"allocate not said", balancer, func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = nil },
			[]string{"spec.allocateLoadBalancerNodePorts: Required value"}},
	} {
		t.Run(test.name, func(t *testing.T) { compare(t, Service(service(test.typ, test.change)), test.want...) })
	}
}

func affinity(s *corev1.Service, seconds *int32) {
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
}

func TestServiceUpdate(t *testing.T) {
	allocated := func(s *corev1.Service) {
		s.ResourceVersion = "1"
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1"}
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{"IPv4"}, set(corev1.IPFamilyPolicySingleStack)
	}
	dual := func(s *corev1.Service) {
		allocated(s)
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd00::1")
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = append(s.Spec.IPFamilies, "IPv6"), set(corev1.IPFamilyPolicyPreferDualStack)
	}
	for _, test := range []struct {
		name        string
		typ         corev1.ServiceType
		old, change func(*corev1.Service)
		want        []string
	}{
		{"nothing", clusterIP, allocated, func(*corev1.Service) {}, nil},
		{"other address", clusterIP, allocated, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.2", []string{"10.0.0.2"} },
			[]string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
		{"no address", clusterIP, allocated, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
			[]string{"spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset"}},
		{"to headless", clusterIP, allocated, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			[]string{`spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`}},
		{"other family", clusterIP, allocated, func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv6"} },
			[]string{"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value", `spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set`}},
		{"second family", clusterIP, allocated, func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{"IPv4", "IPv6"}, set(corev1.IPFamilyPolicyRequireDualStack)
		}, nil},
		{"release the second", clusterIP, dual, allocated, nil},
		{"release the second without saying so", clusterIP, dual, func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
		}, []string{
			"spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the secondary clusterIP",
			"spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the secondary ipFamily",
		}},
		{"other class", balancer, func(s *corev1.Service) { allocated(s); s.Spec.LoadBalancerClass = set("a.com/b") },
			func(s *corev1.Service) { s.Spec.LoadBalancerClass = set("a.com/c") },
			[]string{`spec.loadBalancerClass: Invalid value: "a.com/c": may not change once set`}},
		{"class added", balancer, allocated, func(s *corev1.Service) { s.Spec.LoadBalancerClass = set("a.com/c") },
			[]string{`spec.loadBalancerClass: Invalid value: "a.com/c": may not change once set`}},
		{"other health check port", balancer, func(s *corev1.Service) {
			allocated(s)
			s.Spec.HealthCheckNodePort, s.Spec.ExternalTrafficPolicy = 30001, "Local"
		}, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30002 }, []string{"spec.healthCheckNodePort: Forbidden: field is immutable"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := service(test.typ, test.old)
			s := old.DeepCopy()
			test.change(s)
			compare(t, ServiceUpdate(s, old), test.want...)
		})
	}
}

func TestServiceStatus(t *testing.T) {
	for _, test := range []struct {
		name    string
		typ     corev1.ServiceType
		ingress corev1.LoadBalancerIngress
		want    []string
	}{
		{"VIP", balancer, corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: set(corev1.LoadBalancerIPModeVIP)}, nil},
		{"proxy", balancer, corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: set(corev1.LoadBalancerIPModeProxy)}, nil},
		{"name", balancer, corev1.LoadBalancerIngress{Hostname: "lb.example.com"}, nil},
		{"bad IP", balancer, corev1.LoadBalancerIngress{IP: "x", IPMode: set(corev1.LoadBalancerIPModeVIP)}, []string{`status.loadBalancer.ingress[0].ip: Invalid value: "x"`}},
		{"IP without mode", balancer, corev1.LoadBalancerIngress{IP: "192.0.2.1"}, []string{"status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set"}},
		{"mode without IP", balancer, corev1.LoadBalancerIngress{Hostname: "a", IPMode: set(corev1.LoadBalancerIPModeVIP)},
			[]string{"status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set"}},
		{"unknown mode", balancer, corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: set(corev1.LoadBalancerIPMode("DSR"))},
			[]string{`status.loadBalancer.ingress[0].ipMode: Unsupported value: "DSR": supported values: "Proxy", "VIP"`}},
		{"IP for a name", balancer, corev1.LoadBalancerIngress{Hostname: "192.0.2.1"},
			[]string{`status.loadBalancer.ingress[0].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`}},
		{"not a load balancer", clusterIP, corev1.LoadBalancerIngress{Hostname: "a"},
			[]string{"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := service(test.typ, nil)
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{test.ingress}
			compare(t, ServiceStatus(s, nil), test.want...)
		})
	}
}

// TestFormerSourceRanges: a Service that an earlier version took keeps what it has, and
// gets nothing more of that kind.
func TestFormerSourceRanges(t *testing.T) {
	old := service(balancer, nil)
	old.Spec.LoadBalancerSourceRanges = []string{"10.0.0.5/8"}
	next := old.DeepCopy()
	next.Labels = map[string]string{"a": "b"}
	if errs := ServiceUpdate(next, old); len(errs) > 0 {
		t.Errorf("what it had is refused: %v", errs)
	}
	next.Spec.LoadBalancerSourceRanges = append(next.Spec.LoadBalancerSourceRanges, "10.0.0.6/8")
	if errs := ServiceUpdate(next, old); len(errs) != 1 {
		t.Errorf("a new one: %v", errs)
	}
}
