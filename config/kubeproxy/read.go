package kubeproxy

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Configuration is kube-proxy's own type.
type Configuration = v1alpha1.KubeProxyConfiguration

// formerFields were fields of v1alpha1 that Kubernetes 1.28 to 1.37 take no
// notice of; files that went through many upgrades still have them.
var formerFields = []string{"udpIdleTimeout", "resourceContainer", "nodeName"}

// Read reads a file, strictly: an unknown or double field is an error, and so
// is a value that makes no sense. What the file leaves out gets kube-proxy's
// default. Warnings name fields that the file sets and that have no effect.
func Read(path string) (*Configuration, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	c, warnings, err := Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, warnings, nil
}

// Parse is Read for what a file holds.
func Parse(data []byte) (*Configuration, []string, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("make decoder: %w", err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := decoder.Decode(data, nil, nil)
	var warnings []string
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		if warnings, err = lenient(strict.Errors()); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case runtime.IsMissingVersion(err):
		return nil, nil, fmt.Errorf("apiVersion: missing, must be %s", v1alpha1.SchemeGroupVersion)
	case runtime.IsMissingKind(err):
		return nil, nil, errors.New("kind: missing, must be KubeProxyConfiguration")
	case runtime.IsNotRegisteredError(err):
		return nil, nil, fmt.Errorf("apiVersion and kind: must be %s and KubeProxyConfiguration: %w", v1alpha1.SchemeGroupVersion, err)
	case err != nil:
		return nil, nil, fmt.Errorf("decode: %w", err)
	}
	c, ok := object.(*Configuration)
	if !ok {
		return nil, nil, fmt.Errorf("apiVersion and kind: %s is no KubeProxyConfiguration", kind)
	}
	warnings = append(warnings, Warnings(c)...)
	Default(c)
	if err := Validate(c); err != nil {
		return nil, nil, err
	}
	return c, warnings, nil
}

var unknownField = regexp.MustCompile(`^unknown field "([^"]+)"$`)

// lenient sorts the complaints of strict decoding into warnings about fields
// that once were, and an error about all others.
func lenient(complaints []error) (warnings []string, err error) {
	var wrong []string
	for _, c := range complaints {
		match := unknownField.FindStringSubmatch(c.Error())
		switch {
		case match == nil:
			wrong = append(wrong, c.Error())
		case slices.Contains(formerFields, match[1]):
			warnings = append(warnings, match[1]+": kube-proxy has no such field any more")
		default:
			wrong = append(wrong, fmt.Sprintf("%s: no such field", match[1]))
		}
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return warnings, nil
}
