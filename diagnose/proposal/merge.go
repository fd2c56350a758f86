package proposal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
)

// manager is who the server is told asks.
const manager = "fairway-diff"

// get is an object of a kind that isn't listed, or nil.
func (j *joiner) get(ctx context.Context, where dynamic.ResourceInterface, u *unstructured.Unstructured) *object {
	live, err := where.Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil // then it is made, as far as anybody can tell
	}
	return &object{raw: live}
}

// merged is what becomes of an object; nil if it stays as it is, or is refused.
func (j *joiner) merged(ctx context.Context, where dynamic.ResourceInterface, u *unstructured.Unstructured, live *object) (is *unstructured.Unstructured, refused string) {
	if live == nil {
		is, err := where.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager})
		if err == nil {
			return is, ""
		}
		if j.namespaces[u.GetNamespace()] && apierrors.IsNotFound(err) { // which the manifests make
			local := u.DeepCopy()
			local.SetCreationTimestamp(metav1.Now())
			return local, ""
		}
		return j.without(err, u.DeepCopy())
	}
	patch, kind, err := patchOf(u, live.raw)
	if err != nil {
		return nil, err.Error()
	}
	if string(patch) == "{}" {
		return nil, ""
	}
	is, err = where.Patch(ctx, u.GetName(), kind, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager})
	if err == nil {
		return is, ""
	}
	local, failed := patched(live.raw, patch, kind)
	if failed != nil {
		return nil, failed.Error()
	}
	return j.without(err, local)
}

// without is what becomes of an object without the server: it is merged here if nobody may ask the
// server, or refused if the server refuses it.
func (j *joiner) without(err error, local *unstructured.Unstructured) (*unstructured.Unstructured, string) {
	if !isUnasked(err) {
		return nil, reasonOf(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.local = true
	if local.GetCreationTimestamp().Time.IsZero() { // the oldest has precedence
		local.SetCreationTimestamp(metav1.Now())
	}
	return local, ""
}

// isUnasked reports whether the user may not ask for a dry run, or the server can't make one. What
// admission refuses is forbidden too, but says nothing of the user.
func isUnasked(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsForbidden(err) && strings.Contains(err.Error(), "User ") && strings.Contains(err.Error(), " cannot ") ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// reasonOf says why the server refuses an object, with each field at fault.
func reasonOf(err error) string {
	status, is := err.(apierrors.APIStatus) //nolint:errorlint // the client wraps none
	if !is || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var list []string
	for _, c := range status.Status().Details.Causes {
		text := c.Message
		if c.Field != "" {
			text = c.Field + ": " + text
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// patchOf is the patch that kubectl apply would send: what was applied last, and is no longer
// there, goes; what others have written stays.
func patchOf(u, live *unstructured.Unstructured) (patch []byte, kind types.PatchType, err error) {
	last := []byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	current, err := json.Marshal(withoutLast(live))
	if err != nil {
		return nil, "", fmt.Errorf("write it as JSON: %w", err)
	}
	modified, err := json.Marshal(withoutLast(u))
	if err != nil {
		return nil, "", fmt.Errorf("write it as JSON: %w", err)
	}
	if typed, err := kinds.New(u.GroupVersionKind()); err == nil && isBuiltIn(u) {
		meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
		if err != nil {
			return nil, "", fmt.Errorf("merge: %w", err)
		}
		patch, err := strategicpatch.CreateThreeWayMergePatch(last, modified, current, meta, true)
		if err != nil {
			return nil, "", fmt.Errorf("merge with what runs: %w", err)
		}
		return patch, types.StrategicMergePatchType, nil
	}
	if len(last) == 0 {
		last = []byte("{}")
	}
	patch, err = jsonmergepatch.CreateThreeWayJSONMergePatch(last, modified, current)
	if err != nil {
		return nil, "", fmt.Errorf("merge with what runs: %w", err)
	}
	return patch, types.MergePatchType, nil
}

// isBuiltIn reports whether lists of a kind are merged by their keys. Those of custom resources
// are replaced.
func isBuiltIn(u *unstructured.Unstructured) bool {
	group := u.GroupVersionKind().Group
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") && group != "gateway.networking.k8s.io"
}

// withoutLast is an object without what isn't compared: the note of what was applied last.
func withoutLast(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	unstructured.RemoveNestedField(c.Object, "status")
	return c.Object
}

// patched applies a patch here.
func patched(live *unstructured.Unstructured, patch []byte, kind types.PatchType) (*unstructured.Unstructured, error) {
	current, err := json.Marshal(live.Object)
	if err != nil {
		return nil, fmt.Errorf("write it as JSON: %w", err)
	}
	var merged []byte
	if kind == types.StrategicMergePatchType {
		typed, err := kinds.New(live.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("merge: %w", err)
		}
		if merged, err = strategicpatch.StrategicMergePatch(current, patch, typed); err != nil {
			return nil, fmt.Errorf("merge: %w", err)
		}
	} else if merged, err = jsonpatch.MergePatch(current, patch); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	is := &unstructured.Unstructured{}
	if err := is.UnmarshalJSON(merged); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	return is, nil
}
