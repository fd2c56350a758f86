package crds_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairway-net/fairway/apis/metallb/crds"
)

// samplesVariable names further directories with manifests, such as MetalLB's own
// samples, that must be valid as they are.
const samplesVariable = "FAIRWAY_METALLB_SAMPLES"

// kind is a version of a kind as the definitions have it.
type kind struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

func kinds(t *testing.T) map[string]kind {
	t.Helper()
	list := map[string]kind{}
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := crds.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &definition); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, version := range definition.Spec.Versions {
			internal := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil); err != nil {
				t.Fatal(err)
			}
			structural, err := schema.NewStructural(internal)
			if err != nil {
				t.Fatal(err)
			}
			validator, _, err := validation.NewSchemaValidator(internal)
			if err != nil {
				t.Fatal(err)
			}
			list[definition.Spec.Group+"/"+version.Name+" "+definition.Spec.Names.Kind] = kind{validator, structural}
		}
	}
	return list
}

// TestSamples: configurations as MetalLB's users have them are valid against the
// definitions as they are, and no field of theirs is unknown.
func TestSamples(t *testing.T) {
	all := kinds(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range filepath.SplitList(os.Getenv(samplesVariable)) {
		more, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	seen := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for name, object := range documents(t, text) {
				k, ok := all[object["apiVersion"].(string)+" "+object["kind"].(string)]
				if !ok {
					continue // a Service, say
				}
				seen[object["kind"].(string)] = true
				for _, err := range validation.ValidateCustomResource(nil, object, k.validator) {
					t.Errorf("%s: %v", name, err)
				}
				unknown := pruning.PruneWithOptions(object, k.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
				if len(unknown) > 0 {
					t.Errorf("%s: fields that the definition does not know: %v", name, unknown)
				}
			}
		})
	}
	for _, want := range []string{"IPAddressPool", "L2Advertisement", "BGPAdvertisement", "BGPPeer", "BFDProfile", "Community"} {
		if !seen[want] {
			t.Errorf("no sample has a %s", want)
		}
	}
}

// TestBadSamples: what MetalLB's definitions refuse is refused.
func TestBadSamples(t *testing.T) {
	all := kinds(t)
	for _, test := range []struct{ kind, spec, want string }{
		{"v1beta1 BFDProfile", "detectMultiplier: 1", "spec.detectMultiplier"},
		{"v1beta1 BFDProfile", "receiveInterval: 5", "spec.receiveInterval"},
		{"v1beta1 BFDProfile", "minimumTtl: 255", "spec.minimumTtl"},
		{"v1beta1 BGPAdvertisement", "aggregationLength: 33", "spec.aggregationLength"},
		{"v1beta1 BGPAdvertisement", "aggregationLength: 0", "spec.aggregationLength"},
		{"v1beta2 BGPPeer", "{myASN: -1, peerASN: 1, peerAddress: 192.0.2.1}", "spec.myASN"},
		{"v1beta2 BGPPeer", "{myASN: 1, dynamicASN: both, peerAddress: 192.0.2.1}", "spec.dynamicASN"},
		{"v1beta2 BGPPeer", "{myASN: 1, peerASN: 2, peerAddress: 192.0.2.1, peerPort: 70000}", "spec.peerPort"},
		{"v1beta1 IPAddressPool", "autoAssign: true", "spec.addresses"},
	} {
		text := fmt.Sprintf("spec: %s", test.spec)
		if !strings.HasPrefix(test.spec, "{") {
			text = "spec:\n  " + test.spec
		}
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		errs := validation.ValidateCustomResource(nil, object, all["metallb.io/"+test.kind].validator)
		if got := errs.ToAggregate(); got == nil || !strings.Contains(got.Error(), test.want) {
			t.Errorf("%s, %s: %v, want something about %q", test.kind, test.spec, got, test.want)
		}
	}
}

// documents are a file's objects, by kind and name.
func documents(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	list := map[string]map[string]any{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		meta, _ := object["metadata"].(map[string]any)
		list[fmt.Sprint(object["kind"], " ", meta["name"], " ", len(list))] = object
	}
}
