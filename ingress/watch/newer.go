package watch

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/compile"
)

// noteFilters notes which listeners have filters (Gateway API 1.7, experimental channel).
// The types that objects are read into have no such field, so that a listener which lets
// in whom ExternalAuth lets in would let in anybody. Field managers have said so.
func noteFilters(object any) {
	var o metav1.Object
	switch x := object.(type) {
	case *gatewayv1.Gateway:
		o = x
	case *gatewayv1.ListenerSet:
		o = x
	default:
		return
	}
	var names []string
	for _, m := range o.GetManagedFields() {
		if m.FieldsV1 == nil || !strings.Contains(m.FieldsV1.GetRawString(), `"f:filters"`) {
			continue
		}
		var fields struct {
			Spec struct {
				Listeners map[string]map[string]json.RawMessage `json:"f:listeners"`
			} `json:"f:spec"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil { // which the API has written
			continue
		}
		for key, listener := range fields.Spec.Listeners {
			var name struct{ Name string }
			text, found := strings.CutPrefix(key, "k:")
			if !found || listener["f:filters"] == nil || json.Unmarshal([]byte(text), &name) != nil {
				continue
			}
			names = append(names, name.Name)
		}
	}
	annotations := o.GetAnnotations()
	delete(annotations, compile.AnnotationFilters) // nobody else's word counts
	if len(names) == 0 {
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	slices.Sort(names)
	annotations[compile.AnnotationFilters] = strings.Join(slices.Compact(names), ",")
	o.SetAnnotations(annotations)
}
