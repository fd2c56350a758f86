package join

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NameProblem is what is wrong with the name of a machine; "" if nothing is. The name
// is one in DNS, and the value of the label kubernetes.io/hostname.
func NameProblem(name string) string {
	switch {
	case len(name) > validation.LabelValueMaxLength:
		return fmt.Sprintf("can't be a name in DNS (it has %d letters, %d are the most)", len(name), validation.LabelValueMaxLength)
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return "can't be a name in DNS (lower case letters, digits, '-' and '.', with a letter or digit at both ends and beside each '.')"
	}
	return ""
}
