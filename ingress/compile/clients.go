package compile

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
)

// readClients reads which certificates clients must have. A Secret of another
// namespace is not read.
func readClients(r *reading, t string) error {
	c, o, a := r.compiler, r.o, r.a
	name := types.NamespacedName{Namespace: o.Namespace, Name: t}
	if namespace, short, found := strings.Cut(t, "/"); found {
		if name.Name = short; namespace != o.Namespace {
			return fmt.Errorf("%s is in another namespace, and is not read", t)
		}
	}
	switch verify := or(o.Annotations[nginx+"auth-tls-verify-client"], "on"); verify {
	case "off":
		return readIdentity(r)
	case "on", "optional_no_ca":
		list, err := c.authorities("", "Secret", name)
		if err != nil {
			return err
		}
		if err := readIdentity(r); err != nil {
			return err
		}
		a.clients = &model.ClientValidation{Roots: poolOf(list), Authorities: list, Optional: verify == "optional_no_ca"}
		return nil
	default:
		return errors.New("auth-tls-verify-client: " + verify + " is not supported: must be on, off or optional_no_ca")
	}
}
