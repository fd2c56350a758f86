package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// projected reads the files of a volume that is put together from several sources.
func (w *worker) projected(ctx context.Context, sources []corev1.VolumeProjection) (map[string][]byte, error) {
	all := map[string][]byte{}
	for i, s := range sources {
		files, err := w.projection(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("sources[%d]: %w", i, err)
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (w *worker) projection(ctx context.Context, s corev1.VolumeProjection) (map[string][]byte, error) {
	switch {
	case s.Secret != nil:
		return w.secretFiles(ctx, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.ConfigMap != nil:
		return w.configMapFiles(ctx, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.DownwardAPI != nil:
		return w.downward(ctx, s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		return w.accountToken(ctx, s.ServiceAccountToken)
	}
	return nil, errors.New("the lab knows secret, configMap, downwardAPI and serviceAccountToken only")
}

// downward is the files that tell a pod about itself.
func (w *worker) downward(ctx context.Context, items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, i := range items {
		text, err := w.downwardText(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Path, err)
		}
		files[i.Path] = []byte(text)
	}
	return files, nil
}

func (w *worker) downwardText(ctx context.Context, i corev1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case i.FieldRef != nil:
		return w.field(i.FieldRef.FieldPath)
	case i.ResourceFieldRef != nil:
		return w.resourceValue(ctx, &corev1.Container{}, i.ResourceFieldRef)
	}
	return "", errors.New("neither fieldRef nor resourceFieldRef is given")
}

// field is a field of the pod, all labels or annotations included, a line each
// (Kubernetes documentation, "Downward API").
func (w *worker) field(path string) (string, error) {
	switch path {
	case "metadata.labels":
		return quoted(w.first.Labels), nil
	case "metadata.annotations":
		return quoted(w.first.Annotations), nil
	}
	return fieldValue(w.first, path, w.sandbox.addresses(), w.node)
}

func quoted(values map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
	}
	return strings.Join(lines, "\n")
}

// accountToken is a token of the pod's service account.
func (w *worker) accountToken(ctx context.Context, s *corev1.ServiceAccountTokenProjection) (map[string][]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	account := w.first.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	} else {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.first.Name, UID: w.uid}
	}
	answer, err := w.kubelet.client.CoreV1().ServiceAccounts(w.first.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s: %w", account, err)
	}
	return map[string][]byte{s.Path: []byte(answer.Status.Token)}, nil
}
