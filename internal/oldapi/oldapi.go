// Package oldapi brings objects of API versions that Kubernetes no longer serves
// into their present form.
package oldapi

import "fmt"

// versions are the present versions of kinds that once had others.
var versions = map[string]map[string]string{
	"extensions/v1beta1": {
		"Deployment": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
		"Ingress": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1",
	},
	"apps/v1beta1":                      {"Deployment": "apps/v1", "StatefulSet": "apps/v1"},
	"apps/v1beta2":                      {"Deployment": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"},
	"networking.k8s.io/v1beta1":         {"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1"},
	"rbac.authorization.k8s.io/v1beta1": rbac,
	"coordination.k8s.io/v1beta1":       {"Lease": "coordination.k8s.io/v1"},
	"scheduling.k8s.io/v1beta1":         {"PriorityClass": "scheduling.k8s.io/v1"},
}

var rbac = map[string]string{
	"Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
	"ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
}

// Present is the version that a kind of an old version has today; "" if it isn't
// an old one that is known here.
func Present(version, kind string) string { return versions[version][kind] }

// Convert brings an object into its present form, in place. The notes say what a
// reader of the result should know.
func Convert(object map[string]any) (notes []string, err error) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if version == "v1" && kind == "Service" {
		return serviceNames(object), nil
	}
	present := Present(version, kind)
	if present == "" {
		return nil, nil
	}
	spec := child(object, "spec")
	switch {
	case kind == "Ingress":
		if err := ingress(spec); err != nil {
			return nil, fmt.Errorf("convert Ingress %v: %w", child(object, "metadata")["name"], err)
		}
	case present == "apps/v1":
		workload(spec)
	}
	object["apiVersion"] = present
	return nil, nil
}

// child is a map within a map; nil if there is none.
func child(object map[string]any, name string) map[string]any {
	c, _ := object[name].(map[string]any)
	return c
}

// workload gives a set of pods the selector that it had by default, and takes
// away what is no field any more.
func workload(spec map[string]any) {
	if spec == nil {
		return
	}
	labels := child(child(child(spec, "template"), "metadata"), "labels")
	if spec["selector"] == nil && len(labels) > 0 {
		selected := map[string]any{}
		for name, value := range labels {
			selected[name] = value
		}
		spec["selector"] = map[string]any{"matchLabels": selected}
	}
	delete(spec, "rollbackTo")
	delete(spec, "templateGeneration")
}

// ingress rewrites the backends of an Ingress.
func ingress(spec map[string]any) error {
	if spec == nil {
		return nil
	}
	if old := child(spec, "backend"); old != nil {
		now, err := backend(old)
		if err != nil {
			return fmt.Errorf("spec.backend.%w", err)
		}
		delete(spec, "backend")
		spec["defaultBackend"] = now
	}
	rules, _ := spec["rules"].([]any)
	for i := range rules {
		rule, _ := rules[i].(map[string]any)
		paths, _ := child(rule, "http")["paths"].([]any)
		for j := range paths {
			path, _ := paths[j].(map[string]any)
			if path == nil {
				continue
			}
			now, err := backend(child(path, "backend"))
			if err != nil {
				return fmt.Errorf("spec.rules[%d].http.paths[%d].backend.%w", i, j, err)
			}
			path["backend"] = now
			if path["pathType"] == nil {
				path["pathType"] = "ImplementationSpecific"
			}
		}
	}
	return nil
}

// backend rewrites a backend.
func backend(old map[string]any) (map[string]any, error) {
	if old["resource"] != nil {
		return old, nil
	}
	name, _ := old["serviceName"].(string)
	if name == "" {
		return nil, fmt.Errorf("serviceName: it is missing")
	}
	name = label(name)
	port := map[string]any{}
	switch p := old["servicePort"].(type) {
	case nil:
		return nil, fmt.Errorf("servicePort: it is missing")
	case string:
		port["name"] = p
	default:
		port["number"] = p
	}
	return map[string]any{"service": map[string]any{"name": name, "port": port}}, nil
}
