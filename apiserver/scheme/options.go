package scheme

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addOptions has the options of a request to nodes/NAME/proxy/PATH read: the library
// gives the path as if it was a parameter.
func addOptions(s *runtime.Scheme) error {
	return s.AddConversionFunc((*url.Values)(nil), (*corev1.NodeProxyOptions)(nil), func(in, out any, _ conversion.Scope) error {
		out.(*corev1.NodeProxyOptions).Path = in.(*url.Values).Get("path")
		return nil
	})
}
