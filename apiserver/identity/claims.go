package identity

import (
	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/types"
)

// claims are those of a ServiceAccount's token, as Kubernetes lays them out
// (KEP-1205 and KEP-4193).
type claims struct {
	jwt.RegisteredClaims
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string `json:"namespace"`
	ServiceAccount ref    `json:"serviceaccount"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	Node           *ref   `json:"node,omitempty"`
}

// ref names one object: a new one of the same name is another.
type ref struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// bound are the objects that must be there for the token to hold.
func (k *kubernetesClaims) bound() map[string]*ref {
	return map[string]*ref{"serviceaccounts": &k.ServiceAccount, "pods": k.Pod, "secrets": k.Secret, "nodes": k.Node}
}
