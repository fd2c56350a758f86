package upstream

import (
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
)

// The rules of each kind.
var (
	ConfigMaps             = &Rules{main: configmap.Strategy}
	Events                 = &Rules{main: event.Strategy}
	LimitRanges            = &Rules{main: limitrange.Strategy}
	Namespaces             = &Rules{main: namespace.Strategy, status: namespace.StatusStrategy}
	Nodes                  = &Rules{main: node.Strategy, status: node.StatusStrategy}
	PodTemplates           = &Rules{main: podtemplate.Strategy}
	Pods                   = &Rules{main: pod.Strategy, status: pod.StatusStrategy}
	ReplicationControllers = &Rules{main: replicationcontroller.Strategy, status: replicationcontroller.StatusStrategy}
	ResourceQuotas         = &Rules{main: resourcequota.Strategy, status: resourcequota.StatusStrategy}
	Secrets                = &Rules{main: secret.Strategy}

	DaemonSets   = &Rules{main: daemonset.Strategy, status: daemonset.StatusStrategy}
	Deployments  = &Rules{main: deployment.Strategy, status: deployment.StatusStrategy}
	ReplicaSets  = &Rules{main: replicaset.Strategy, status: replicaset.StatusStrategy}
	StatefulSets = &Rules{main: statefulset.Strategy, status: statefulset.StatusStrategy}
	CronJobs     = &Rules{main: cronjob.Strategy, status: cronjob.StatusStrategy}
	Jobs         = &Rules{main: job.Strategy, status: job.StatusStrategy}

	IPAddresses     = &Rules{main: ipaddress.Strategy}
	IngressClasses  = &Rules{main: ingressclass.Strategy}
	Ingresses       = &Rules{main: ingress.Strategy, status: ingress.StatusStrategy}
	NetworkPolicies = &Rules{main: networkpolicy.Strategy}
	ServiceCIDRs    = &Rules{main: servicecidr.Strategy, status: servicecidr.StatusStrategy}

	ClusterRoleBindings = &Rules{main: clusterrolebinding.Strategy}
	ClusterRoles        = &Rules{main: clusterrole.Strategy}
	RoleBindings        = &Rules{main: rolebinding.Strategy}
	Roles               = &Rules{main: role.Strategy}

	FlowSchemas                 = &Rules{main: flowschema.Strategy, status: flowschema.StatusStrategy}
	Leases                      = &Rules{main: lease.Strategy}
	PodDisruptionBudgets        = &Rules{main: poddisruptionbudget.Strategy, status: poddisruptionbudget.StatusStrategy}
	PriorityClasses             = &Rules{main: priorityclass.Strategy}
	PriorityLevelConfigurations = &Rules{main: prioritylevelconfiguration.Strategy, status: prioritylevelconfiguration.StatusStrategy}
	// Who may decide, and who issue, is the registry's business.
	CertificateSigningRequests = &Rules{main: certificates.Strategy}

	MutatingWebhookConfigurations   = &Rules{main: mutatingwebhookconfiguration.Strategy}
	ValidatingWebhookConfigurations = &Rules{main: validatingwebhookconfiguration.Strategy}
	// Without an authorizer they don't ask whether the writer may read the parameters.
	MutatingAdmissionPolicies         = &Rules{main: mutatingadmissionpolicy.NewStrategy(nil, nil)}
	MutatingAdmissionPolicyBindings   = &Rules{main: mutatingadmissionpolicybinding.NewStrategy(nil, nil, nil)}
	ValidatingAdmissionPolicies       = &Rules{main: validatingAdmissionPolicies, status: validatingadmissionpolicy.NewStatusStrategy(validatingAdmissionPolicies)}
	ValidatingAdmissionPolicyBindings = &Rules{main: validatingadmissionpolicybinding.NewStrategy(nil, nil, nil)}

	validatingAdmissionPolicies = validatingadmissionpolicy.NewStrategy(nil, nil)
)
