//go:build differential

package differential

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// place is where a value is in an object.
type place struct {
	path string
	get  any
	set  func(any)
	drop func()
}

// places are all of an object but those that say what it is.
func places(path string, value any, set func(any), drop func()) []place {
	out := []place{{path, value, set, drop}}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(mapsKeys(v)) {
			out = append(out, places(path+"."+key, v[key], func(x any) { v[key] = x }, func() { delete(v, key) })...)
		}
	case []any:
		for i := range v {
			out = append(out, places(path+"[]", v[i], func(x any) { v[i] = x }, func() { set(slices.Delete(slices.Clone(v), i, i+1)) })...)
		}
	}
	return out
}

func mapsKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// strings that some field or other doesn't take, or takes for something else.
var texts = []string{
	"", "a", "UPPER", "a_b", "-a", "a.b", "a/b", "example.com/a", "a b", "*", "*.example.com", "TCP", "UDP", "SCTP", "tcp", "Always", "Never", "None", "Local", "Cluster",
	"1.2.3.4", "10.96.0.77", "127.0.0.1", "169.254.1.1", "0.0.0.0", "::1", "2001:db8::1", "fe80::1", "300.1.1.1", "1.2.3.04", "10.0.0.0/8", "10.0.0.1/8", "IPv4", "IPv6",
	"http", "80", "100m", "1Gi", "-1", "50%", "101%", "2026-01-01T00:00:00Z", "0 * * * *", "ExternalName", "LoadBalancer", "ClusterIP", "NodePort",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 254),
}

var numbers = []int64{-1, 0, 1, 2, 80, 443, 30080, 30081, 65535, 65536, 86400, 86401, 1 << 31}

// labels are keys that fields of free keys take or don't.
var keys = []string{"a", "UPPER", "a b", "example.com/a", "/a", strings.Repeat("a", 64)}

// mutate changes an object in a place or two. It returns what it did.
func mutate(r *rand.Rand, object map[string]any) string {
	var done []string
	for range 1 + r.IntN(2) {
		var all []place
		for _, p := range places("", object, nil, nil) {
			if p.path != "" && p.path != ".apiVersion" && p.path != ".kind" && p.path != ".metadata" && !strings.HasPrefix(p.path, ".metadata.name") {
				all = append(all, p)
			}
		}
		if len(all) == 0 {
			break
		}
		p := all[r.IntN(len(all))]
		done = append(done, p.path+" "+change(r, p))
	}
	return strings.Join(done, ", ")
}

// change changes a value for another one, of its type almost always.
func change(r *rand.Rand, p place) string {
	if r.IntN(5) == 0 {
		p.drop()
		return "dropped"
	}
	var to any
	switch v := p.get.(type) {
	case string:
		to = texts[r.IntN(len(texts))]
	case int64, float64:
		to = numbers[r.IntN(len(numbers))]
	case bool:
		to = !v
	case []any:
		to = []any{}
		if len(v) > 0 && r.IntN(3) > 0 {
			to = append(slices.Clone(v), runtime.DeepCopyJSONValue(v[r.IntN(len(v))]))
		}
	case map[string]any:
		m := runtime.DeepCopyJSON(v)
		to = m
		if r.IntN(3) == 0 {
			to = map[string]any{}
		} else {
			m[keys[r.IntN(len(keys))]] = texts[r.IntN(len(texts))]
		}
	}
	p.set(to)
	text, _ := json.Marshal(to) // what JSON was made of
	return "= " + string(text)
}
