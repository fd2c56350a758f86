package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// valueFrom is the value of a variable that is kept elsewhere; false for one
// that is optional and missing.
func (w *worker) valueFrom(ctx context.Context, from *corev1.EnvVarSource, spec *corev1.Container, addresses []netip.Addr) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldValue(w.first, from.FieldRef.FieldPath, addresses, w.node)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		values, err := w.configMap(ctx, r.Name, r.Optional)
		return keyOf(values, r.Key, r.Optional, "ConfigMap "+r.Name, err)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		values, err := w.secret(ctx, r.Name, r.Optional)
		return keyOf(values, r.Key, r.Optional, "Secret "+r.Name, err)
	}
	if from.ResourceFieldRef != nil {
		value, err := w.resourceValue(ctx, spec, from.ResourceFieldRef)
		return value, err == nil, err
	}
	return "", false, errors.New("valueFrom: the lab knows fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef only")
}

func keyOf(values map[string]string, key string, optional *bool, object string, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, has := values[key]
	if !has && !isTrue(optional) {
		return "", false, fmt.Errorf("%s has no key %q", object, key)
	}
	return value, has, nil
}

// variablesFrom makes a variable of each key of a ConfigMap or Secret, in the
// order of their names.
func (w *worker) variablesFrom(ctx context.Context, from corev1.EnvFromSource) ([]corev1.EnvVar, error) {
	var values map[string]string
	var err error
	switch {
	case from.ConfigMapRef != nil:
		values, err = w.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		values, err = w.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
	default:
		err = errors.New("neither configMapRef nor secretRef is given")
	}
	var env []corev1.EnvVar
	for _, key := range slices.Sorted(maps.Keys(values)) {
		env = append(env, corev1.EnvVar{Name: from.Prefix + key, Value: values[key]})
	}
	return env, err
}

// configMap is a ConfigMap's text; nothing for a missing one that is optional.
func (w *worker) configMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	m, err := w.kubelet.client.CoreV1().ConfigMaps(w.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	return m.Data, nil
}

// secret is a Secret's values; nothing for a missing one that is optional.
func (w *worker) secret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	s, err := w.kubelet.client.CoreV1().Secrets(w.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	values := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		values[key] = string(value)
	}
	return values, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
