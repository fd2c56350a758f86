package tables

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// ConfigMaps prints ConfigMaps.
func ConfigMaps() rest.TableConvertor {
	return of(func(c *corev1.ConfigMap) []any {
		return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp)}
	}, column("Name", "string"), column("Data", "integer"), column("Age", "string"))
}

// Secrets prints Secrets.
func Secrets() rest.TableConvertor {
	return of(func(s *corev1.Secret) []any {
		return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp)}
	}, column("Name", "string"), column("Type", "string"), column("Data", "integer"), column("Age", "string"))
}

// ServiceAccounts prints ServiceAccounts.
func ServiceAccounts() rest.TableConvertor {
	return of(func(s *corev1.ServiceAccount) []any {
		return []any{s.Name, int64(len(s.Secrets)), age(s.CreationTimestamp)}
	}, column("Name", "string"), column("Secrets", "integer"), column("Age", "string"))
}

// Leases prints Leases.
func Leases() rest.TableConvertor {
	return of(func(l *coordinationv1.Lease) []any {
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		return []any{l.Name, holder, age(l.CreationTimestamp)}
	}, column("Name", "string"), column("Holder", "string"), column("Age", "string"))
}

// Events prints Events.
func Events() rest.TableConvertor {
	return of(func(e *corev1.Event) []any {
		first, last, count := e.FirstTimestamp, e.LastTimestamp, e.Count
		if first.IsZero() {
			first = metav1.Time(e.EventTime)
		}
		if e.Series != nil {
			last, count = metav1.Time(e.Series.LastObservedTime), e.Series.Count
		}
		if last.IsZero() {
			last = first
		}
		object := strings.ToLower(e.InvolvedObject.Kind)
		if e.InvolvedObject.Name != "" {
			object += "/" + e.InvolvedObject.Name
		}
		source := or(e.Source.Component, e.ReportingController)
		if host := or(e.Source.Host, e.ReportingInstance); host != "" {
			source += ", " + host
		}
		return []any{
			age(last), e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source,
			strings.TrimSpace(e.Message), age(first), int64(max(count, 1)), e.Name,
		}
	}, column("Last Seen", "string"), column("Type", "string"), column("Reason", "string"), column("Object", "string"), wide("Subobject", "string"),
		wide("Source", "string"), column("Message", "string"), wide("First Seen", "string"), wide("Count", "integer"), wide("Name", "string"))
}

// Ingresses prints Ingresses.
func Ingresses() rest.TableConvertor {
	return of(func(i *networkingv1.Ingress) []any {
		class := none
		if i.Spec.IngressClassName != nil {
			class = *i.Spec.IngressClassName
		}
		var hosts, addresses []string
		for _, rule := range i.Spec.Rules {
			if rule.Host != "" {
				hosts = append(hosts, rule.Host)
			}
		}
		for _, a := range i.Status.LoadBalancer.Ingress {
			addresses = append(addresses, or(a.IP, a.Hostname))
		}
		ports := "80"
		if len(i.Spec.TLS) > 0 {
			ports = "80, 443"
		}
		return []any{i.Name, class, or(firstFew(hosts, ""), "*"), strings.Join(addresses, ","), ports, age(i.CreationTimestamp)}
	}, column("Name", "string"), column("Class", "string"), column("Hosts", "string"), column("Address", "string"), column("Ports", "string"), column("Age", "string"))
}

// IngressClasses prints IngressClasses.
func IngressClasses() rest.TableConvertor {
	return of(func(c *networkingv1.IngressClass) []any {
		parameters := none
		if p := c.Spec.Parameters; p != nil {
			parameters = p.Kind
			if p.APIGroup != nil {
				parameters += "." + *p.APIGroup
			}
			parameters += "/" + p.Name
		}
		return []any{c.Name, c.Spec.Controller, parameters, age(c.CreationTimestamp)}
	}, column("Name", "string"), column("Controller", "string"), column("Parameters", "string"), column("Age", "string"))
}

// IPAddresses prints IPAddresses.
func IPAddresses() rest.TableConvertor {
	return of(func(a *networkingv1.IPAddress) []any {
		parent := ""
		if r := a.Spec.ParentRef; r != nil {
			parent = schema.GroupResource{Group: r.Group, Resource: r.Resource}.String() + "/" + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
		}
		return []any{a.Name, parent, age(a.CreationTimestamp)}
	}, column("Name", "string"), column("ParentRef", "string"), column("Age", "string"))
}

// ServiceCIDRs prints ServiceCIDRs.
func ServiceCIDRs() rest.TableConvertor {
	return of(func(c *networkingv1.ServiceCIDR) []any {
		return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c.CreationTimestamp)}
	}, column("Name", "string"), column("CIDRs", "string"), column("Age", "string"))
}
