// Package assess says of Ingresses what works with Fairway as it did with ingress-nginx,
// what is otherwise, and what isn't done, before anything is installed. It changes
// nothing.
//
//	assess.go    Ingresses to reports
//	complete.go  what manifests leave out
package assess

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// Report is what becomes of an Ingress.
type Report struct {
	Ingress types.NamespacedName `json:"ingress"`
	// Score is how much works, from 0 to 100: 100 is all, as it did; 0 is nothing, since
	// requests would be refused.
	Score     int      `json:"score"`
	Works     []string `json:"works,omitempty"`     // annotations, and paths by their number
	Otherwise []string `json:"otherwise,omitempty"` // what is not as it was
	Not       []string `json:"not,omitempty"`       // what isn't done
	Closed    bool     `json:"closed,omitempty"`    // requests get 500, since something that protects isn't done
}

// Assess reports on the Ingresses among objects, which it takes for Fairway's whatever
// their class. They are changed by nothing.
func Assess(objects *ingress.Objects) []Report {
	o := *objects
	o.IngressClasses = []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "assessed"}, Spec: networkingv1.IngressClassSpec{Controller: ingress.IngressController}}}
	o.Ingresses = nil
	class := "assessed"
	for _, i := range objects.Ingresses {
		i = i.DeepCopy()
		i.Spec.IngressClassName = &class
		o.Ingresses = append(o.Ingresses, i)
	}
	out := ingress.Compile(&o, ingress.Options{})
	closed := closedOnes(out)
	var reports []Report
	for _, i := range o.Ingresses {
		name := types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
		r := Report{Ingress: name, Closed: closed["Ingress "+name.String()]}
		told := ""
		for _, p := range out.Problems {
			if p.Kind != "Ingress" || p.Object != name {
				continue
			}
			told += p.Message + "\n"
			if p.Reason == ingress.ReasonOtherwise || p.Reason == ingress.ReasonConflict {
				r.Otherwise = append(r.Otherwise, p.Message)
			} else {
				r.Not = append(r.Not, p.Message)
			}
		}
		r.count(i, told)
		reports = append(reports, r)
	}
	slices.SortFunc(reports, func(a, b Report) int {
		return strings.Compare(a.Ingress.String(), b.Ingress.String())
	})
	return reports
}

// closedOnes are the Ingresses of which requests are refused because of an annotation.
func closedOnes(out *ingress.Output) map[string]bool {
	closed := map[string]bool{}
	for _, s := range out.Table.Sockets {
		for _, l := range s.Listeners {
			for _, h := range l.Hosts() {
				for _, rule := range h.Rules {
					if strings.HasPrefix(rule.Action.Invalid, "annotation ") {
						closed[rule.Action.Route] = true
					}
				}
			}
		}
	}
	return closed
}

// count lists what works, and gives the score.
func (r *Report) count(i *networkingv1.Ingress, told string) {
	for name := range i.Annotations {
		short, ours := strings.CutPrefix(name, ingress.NginxPrefix)
		if ours && !strings.Contains(told, "annotation "+name+":") {
			r.Works = append(r.Works, short)
		}
	}
	slices.Sort(r.Works)
	whole := 2 * (len(r.Works) + len(r.Otherwise) + len(r.Not))
	paths := 0
	for _, rule := range i.Spec.Rules {
		if rule.HTTP != nil {
			paths += len(rule.HTTP.Paths)
		}
	}
	whole += 2 * paths
	switch {
	case r.Closed || whole == 0 && len(r.Not) > 0:
		r.Score = 0
	case whole == 0:
		r.Score = 100
	default:
		r.Score = 100 * (2*len(r.Works) + 2*paths + len(r.Otherwise)) / whole
	}
}
