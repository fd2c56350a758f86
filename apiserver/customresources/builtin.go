package customresources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	gateway "github.com/fairway-net/fairway/apis/gateway/crds"
	metallb "github.com/fairway-net/fairway/apis/metallb/crds"
)

// builtIn is the one list of definitions that every server has: each file is one
// CustomResourceDefinition (apiextensions.k8s.io/v1).
var builtIn = []fs.FS{
	gateway.Files,
	metallb.Files,
}

// installedAnnotation marks a definition that this package installed, with a
// hash of the manifest and the generation that the object then had.
const installedAnnotation = "fairway.dev/installed"

// Install creates the built-in definitions that aren't there and brings those
// up to date that an earlier version installed. A definition that somebody else
// made or has changed since, by the upstream project's own manifest, say, stays
// as it is. Install returns when all are served, but for those that can't be.
func (s *Server) Install(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", ""
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client of CustomResourceDefinitions: %w", err)
	}
	if err := installAll(ctx, client); err != nil {
		return err
	}
	return s.awaitServed(ctx)
}

// Nobody waits for ever for a definition that the library says nothing of. Of the
// built-in ones it does, however slow the machine is.
const (
	servedTimeout  = 5 * time.Second
	builtInTimeout = 30 * time.Second
)

// awaitServed returns when each definition that the server knows is served or refused,
// or when that takes too long. Until the library has looked through them, it says
// nothing of definitions that others make, either.
func (s *Server) awaitServed(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, builtInTimeout)
	defer cancel()
	definitions, began := s.definitions().Lister(), time.Now()
	err := wait.PollUntilContextCancel(limited, syncedInterval, true, func(context.Context) (bool, error) {
		all, err := definitions.List(labels.Everything())
		return !slices.ContainsFunc(all, func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return isUndecided(d) && (d.Annotations[installedAnnotation] != "" || time.Since(began) < servedTimeout)
		}), err
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for CustomResourceDefinitions to be served: %w", err)
	}
	return nil
}

func isUndecided(d *apiextensionsv1.CustomResourceDefinition) bool {
	return !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) && !apihelpers.IsCRDConditionFalse(d, apiextensionsv1.NamesAccepted)
}

// installedAtATime is how many definitions are installed at a time: to check and to
// write one takes turns between the processor and the disk.
const installedAtATime = 4

func installAll(ctx context.Context, client clientset.Interface) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(installedAtATime)
	for _, files := range builtIn {
		names, err := fs.Glob(files, "*.yaml")
		if err != nil {
			return errors.Join(fmt.Errorf("list built-in CustomResourceDefinitions: %w", err), work.Wait())
		}
		for _, name := range names {
			work.Go(func() error { return installFile(ctx, client, files, name) })
		}
	}
	return work.Wait()
}

func installFile(ctx context.Context, client clientset.Interface, files fs.FS, name string) error {
	manifest, err := fs.ReadFile(files, name)
	if err != nil {
		return fmt.Errorf("read built-in CustomResourceDefinition: %w", err)
	}
	if err := install(ctx, client, manifest); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return nil
}

// install makes the cluster's definition equal to the manifest, unless somebody else made or
// changed the definition.
func install(ctx context.Context, client clientset.Interface, manifest []byte) error {
	wanted := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, wanted); err != nil {
		return fmt.Errorf("parse manifest: %w", err)
	}
	sum := sha256.Sum256(manifest)
	hash := hex.EncodeToString(sum[:8])
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	current, err := definitions.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		mark(wanted, hash, 1)
		return apply(ctx, client, wanted)
	}
	if err != nil {
		return fmt.Errorf("get CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	installed, generation, _ := strings.Cut(current.Annotations[installedAnnotation], "@")
	// Another generation than the one noted: somebody else has changed the spec.
	if installed == hash || generation != strconv.FormatInt(current.Generation, 10) {
		return nil
	}
	mark(wanted, hash, current.Generation+1)
	return apply(ctx, client, wanted)
}

// applier is the field manager of `kubectl apply --server-side`. A manager may replace its
// own fields, so an operator can apply the upstream project's manifests over these without
// conflicts.
const applier = "kubectl"

// apply writes a definition to the server by server-side apply.
func apply(ctx context.Context, client clientset.Interface, wanted *apiextensionsv1.CustomResourceDefinition) error {
	wanted.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return fmt.Errorf("apply CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	data, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("apply CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: applier, Force: &force}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, wanted.Name, types.ApplyPatchType, data, options); err != nil {
		return fmt.Errorf("apply CustomResourceDefinition %s: %w", wanted.Name, err)
	}
	return nil
}

// mark notes on a definition which manifest it is from, and the generation that it has once
// this write is done.
func mark(crd *apiextensionsv1.CustomResourceDefinition, hash string, generation int64) {
	metav1.SetMetaDataAnnotation(&crd.ObjectMeta, installedAnnotation, fmt.Sprintf("%s@%d", hash, generation))
}
