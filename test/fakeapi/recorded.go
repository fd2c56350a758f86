package fakeapi

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// recorded holds what clusters of several versions answer, as `kubectl get -o
// yaml --show-managed-fields` prints it. 1.28.yaml, 1.36.yaml and 1.37.yaml are
// word for word what those kube-apiservers said of a lab's objects and of a
// namespace to which kubelets, a cloud's controllers and people's tools have
// written (lab's openShop):
//
//	make bin/kubernetes/1.36.3
//	FAIRWAY_KUBERNETES=$PWD/bin/kubernetes/1.36.3 FAIRWAY_RECORD=$PWD/test/fakeapi/recorded go test ./lab -run TestControlPlane
//
// 1.33.yaml was written by hand after the documentation of that version, with what
// kubeadm, the kubelet, a cloud's controllers and people's tools leave in objects.
// to-come.yaml has what no version has yet: fields, enumeration values and condition
// types unknown here.
//
//go:embed recorded/*.yaml
var recorded embed.FS

// Versions names the recordings.
func Versions() ([]string, error) {
	files, err := fs.Glob(recorded, "recorded/*.yaml")
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return files, nil
}

// Recorded gives the objects of a recording, as JSON.
func Recorded(version string) ([][]byte, error) {
	text, err := recorded.ReadFile("recorded/" + version + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	var raw map[string]any
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("read recording %s: %w", version, err)
	}
	list.SetUnstructuredContent(raw)
	var objects [][]byte
	for _, item := range list.Items {
		object, err := item.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("read recording %s: %w", version, err)
		}
		objects = append(objects, []byte(strings.TrimSpace(string(object))))
	}
	return objects, nil
}
