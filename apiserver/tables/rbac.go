package tables

import (
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Roles prints Roles.
func Roles() rest.TableConvertor {
	return of(func(r *rbacv1.Role) []any { return []any{r.Name, created(r.CreationTimestamp)} },
		column("Name", "string"), column("Created At", "date"))
}

// ClusterRoles prints ClusterRoles.
func ClusterRoles() rest.TableConvertor {
	return of(func(r *rbacv1.ClusterRole) []any { return []any{r.Name, created(r.CreationTimestamp)} },
		column("Name", "string"), column("Created At", "date"))
}

func created(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// RoleBindings prints RoleBindings.
func RoleBindings() rest.TableConvertor {
	return of(func(b *rbacv1.RoleBinding) []any {
		return bindingRow(b.Name, b.RoleRef, b.CreationTimestamp, b.Subjects)
	}, bindingColumns()...)
}

// ClusterRoleBindings prints ClusterRoleBindings.
func ClusterRoleBindings() rest.TableConvertor {
	return of(func(b *rbacv1.ClusterRoleBinding) []any {
		return bindingRow(b.Name, b.RoleRef, b.CreationTimestamp, b.Subjects)
	}, bindingColumns()...)
}

func bindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		column("Name", "string"), column("Role", "string"), column("Age", "string"),
		wide("Users", "string"), wide("Groups", "string"), wide("ServiceAccounts", "string"),
	}
}

func bindingRow(name string, ref rbacv1.RoleRef, made metav1.Time, subjects []rbacv1.Subject) []any {
	names := map[string][]string{}
	for _, s := range subjects {
		who := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			who = s.Namespace + "/" + s.Name
		}
		names[s.Kind] = append(names[s.Kind], who)
	}
	join := func(kind string) string { return strings.Join(names[kind], ", ") }
	return []any{name, ref.Kind + "/" + ref.Name, age(made), join(rbacv1.UserKind), join(rbacv1.GroupKind), join(rbacv1.ServiceAccountKind)}
}

// CertificateSigningRequests prints CertificateSigningRequests.
func CertificateSigningRequests() rest.TableConvertor {
	return of(func(c *certificatesv1.CertificateSigningRequest) []any {
		wanted := none
		if s := c.Spec.ExpirationSeconds; s != nil {
			wanted = duration.HumanDuration(time.Duration(*s) * time.Second)
		}
		return []any{c.Name, age(c.CreationTimestamp), c.Spec.SignerName, c.Spec.Username, wanted, certificateState(c)}
	}, column("Name", "string"), column("Age", "string"), column("SignerName", "string"), column("Requestor", "string"),
		column("RequestedDuration", "string"), column("Condition", "string"))
}

func certificateState(c *certificatesv1.CertificateSigningRequest) string {
	var states []string
	for _, condition := range c.Status.Conditions {
		states = append(states, string(condition.Type))
	}
	if len(states) == 0 {
		states = []string{"Pending"}
	}
	if len(c.Status.Certificate) > 0 {
		states = append(states, "Issued")
	}
	return strings.Join(states, ",")
}
