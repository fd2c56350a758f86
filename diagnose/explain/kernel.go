package explain

import (
	"fmt"
	"strings"
)

// mostDifferences is how many objects of a node the text names.
const mostDifferences = 5

// AddKernel takes in what the kernel of a node holds of the Service. Where it is
// not what it should be, packets may meet something else than the report says.
func (r *Report) AddKernel(k Kernel) {
	r.Kernel = append(r.Kernel, k)
	if len(k.Differences) == 0 {
		return
	}
	if r.Outcome == OutcomeForwarded {
		r.Outcome = OutcomeUnknown
	}
	r.Answer += fmt.Sprintf("\nBUT THE KERNEL of %s (%s) is not as it should be: %s", k.Node, k.Mode, orElse(k.counted(), "it differs"))
	if next := "fairway dump svc/" + r.Service.Name + " -n " + r.Service.Namespace + " --node " + k.Node; len(r.Next) < 3 {
		r.Next = append(r.Next, next)
	}
}

// counted says how many objects are missing, and how many are unexpected.
func (k Kernel) counted() string {
	var parts []string
	for _, state := range []string{"missing", "unexpected"} {
		n := 0
		for _, d := range k.Differences {
			if strings.HasPrefix(d, state+" ") {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// text writes a line for the node, and one for each object that differs; with
// objects, all that should be there.
func (k Kernel) text(b *strings.Builder, objects bool) {
	fmt.Fprintf(b, " kernel       %s (%s)  ", k.Node, k.Mode)
	if len(k.Differences) == 0 {
		fmt.Fprintf(b, "%d of %d objects as they should be\n", len(k.Objects), len(k.Objects))
	} else {
		fmt.Fprintf(b, "%s\n", k.counted())
	}
	for i, d := range k.Differences {
		if i == mostDifferences && !objects {
			fmt.Fprintf(b, "              and %d more: fairway dump\n", len(k.Differences)-i)
			break
		}
		fmt.Fprintf(b, "              %s\n", d)
	}
	if !objects {
		return
	}
	for _, o := range k.Objects {
		fmt.Fprintf(b, "              %s\n", o)
	}
}
