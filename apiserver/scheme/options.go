package scheme

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addOptions has the options of a request to nodes/NAME/proxy/PATH, and of Pods and Services, read: the library
// gives the path as if it was a parameter.
func addOptions(s *runtime.Scheme) error {
	for to, path := range map[any]func(any) *string{
		(*corev1.NodeProxyOptions)(nil):    func(o any) *string { return &o.(*corev1.NodeProxyOptions).Path },
		(*corev1.PodProxyOptions)(nil):     func(o any) *string { return &o.(*corev1.PodProxyOptions).Path },
		(*corev1.ServiceProxyOptions)(nil): func(o any) *string { return &o.(*corev1.ServiceProxyOptions).Path },
	} {
		err := s.AddConversionFunc((*url.Values)(nil), to, func(in, out any, _ conversion.Scope) error {
			*path(out) = in.(*url.Values).Get("path")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
