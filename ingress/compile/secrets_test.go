package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLastGoodCertificate: a Secret that becomes bad, or goes, doesn't end what
// works; the error says what is wrong with it.
func TestLastGoodCertificate(t *testing.T) {
	known := NewCertificates()
	name := types.NamespacedName{Namespace: "shop", Name: "pair"}
	if pair, err := known.read(name, nil); pair != nil || err == nil {
		t.Fatalf("a Secret that never was: %v, %v", pair, err)
	}
	good, err := known.read(name, &corev1.Secret{Data: aPair(t)})
	if err != nil {
		t.Fatal(err)
	}
	mixed := aPair(t)
	mixed[corev1.TLSPrivateKeyKey] = aPair(t)[corev1.TLSPrivateKeyKey]
	for what, s := range map[string]*corev1.Secret{"gone": nil, "empty": {}, "a key of another certificate": {Data: mixed}} {
		if pair, err := known.read(name, s); pair != good || err == nil {
			t.Errorf("%s: %v, %v; want the last good certificate and an error", what, pair, err)
		}
	}
	if next, err := known.read(name, &corev1.Secret{Data: aPair(t)}); err != nil || next == good {
		t.Errorf("a new certificate isn't taken: %v", err)
	}
}
