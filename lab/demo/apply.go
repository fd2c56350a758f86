package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// apply applies all manifests of a directory on the server's side, as `kubectl
// apply --server-side` does, and names the objects.
func apply(ctx context.Context, config *rest.Config, files fs.FS) ([]string, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", "" // what is dynamic has no protobuf

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	kinds := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(finder))
	objects, err := read(files)
	if err != nil {
		return nil, err
	}
	var applied []string
	for _, o := range objects {
		kind := o.GroupVersionKind()
		mapping, err := kinds.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		_, err = client.Resource(mapping.Resource).Namespace(namespace).Apply(ctx, o.GetName(), o,
			metav1.ApplyOptions{FieldManager: "fairway-demo", Force: true})
		if err != nil {
			return nil, fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		applied = append(applied, strings.ToLower(o.GetKind())+"/"+o.GetName())
	}
	return applied, nil
}

// read reads the objects of all YAML files.
func read(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		f, err := files.Open(path.Clean(name))
		if err != nil {
			return nil, fmt.Errorf("open manifest: %w", err)
		}
		documents := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(f), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := documents.Decode(o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("read manifest %s: %w", name, err), f.Close())
			}
			objects = append(objects, o)
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("close manifest %s: %w", name, err)
		}
	}
	return objects, nil
}
