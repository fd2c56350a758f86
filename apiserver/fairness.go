package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Requests that are worked on at a time, from all users whom priority and fairness
// concerns: kube-apiserver's own figures. Their sum is divided among priority levels.
const (
	readsInFlight  = 400
	writesInFlight = 200
)

// fairness keeps the objects that configure priority and fairness: the library
// follows them, and knows the mandatory ones by itself.
type fairness struct {
	client kubernetes.Interface
	// changed holds a value when an object was changed or deleted.
	changed chan struct{}
	synced  []cache.InformerSynced
	known   informers.SharedInformerFactory
}

// beFair has requests wait for their turn by Kubernetes' priority and fairness.
func (s *Server) beFair(config *genericapiserver.RecommendedConfig, client kubernetes.Interface) error {
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = readsInFlight, writesInFlight
	s.options.Count(config.StorageObjectCountTracker) // by which the costs of lists are known
	config.FlowControl = flowcontrol.New(config.SharedInformerFactory, client.FlowcontrolV1(), readsInFlight+writesInFlight)
	s.fairness = &fairness{client: client, known: config.SharedInformerFactory, changed: make(chan struct{}, 1)}
	f := config.SharedInformerFactory.Flowcontrol().V1()
	for _, informer := range []cache.SharedIndexInformer{f.FlowSchemas().Informer(), f.PriorityLevelConfigurations().Informer()} {
		registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { s.fairness.mark() }, DeleteFunc: func(any) { s.fairness.mark() },
		})
		if err != nil {
			return fmt.Errorf("watch objects of priority and fairness: %w", err)
		}
		s.fairness.synced = append(s.fairness.synced, registered.HasSynced)
	}
	return nil
}

func (f *fairness) mark() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run makes the objects, and makes them again when they were deleted or changed, unless
// an annotation says that a change is wanted. Before they exist, and should they not be
// had, the library goes by the mandatory ones.
func (f *fairness) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), f.synced...) {
		return
	}
	for said := false; ; {
		err := f.ensure(ctx)
		wait := time.Duration(1<<63 - 1)
		if err != nil && ctx.Err() == nil {
			wait = 10 * time.Second
			if !said {
				slog.Warn("FlowSchemas and PriorityLevelConfigurations could not be applied; trying again", "error", err)
			}
			said = true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-f.changed:
			timer.Stop()
		}
	}
}

func (f *fairness) ensure(ctx context.Context) error {
	var errs []error
	known := f.known.Flowcontrol().V1()
	levels := f.client.FlowcontrolV1().PriorityLevelConfigurations()
	for mandatory, list := range map[bool][]*flowcontrolv1.PriorityLevelConfiguration{true: bootstrap.MandatoryPriorityLevelConfigurations, false: bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, want := range list {
			has, err := known.PriorityLevelConfigurations().Lister().Get(want.Name)
			switch {
			case apierrors.IsNotFound(err):
				_, err = levels.Create(ctx, want, metav1.CreateOptions{})
			case err == nil && follows(has, mandatory) && !equality.Semantic.DeepEqual(has.Spec, levelWanted(want, has)):
				changed := has.DeepCopy()
				changed.Spec = levelWanted(want, has)
				_, err = levels.Update(ctx, changed, metav1.UpdateOptions{})
			}
			errs = append(errs, unlessRaced(want.Name, err))
		}
	}
	schemas := f.client.FlowcontrolV1().FlowSchemas()
	for mandatory, list := range map[bool][]*flowcontrolv1.FlowSchema{true: bootstrap.MandatoryFlowSchemas, false: bootstrap.SuggestedFlowSchemas} {
		for _, want := range list {
			has, err := known.FlowSchemas().Lister().Get(want.Name)
			switch {
			case apierrors.IsNotFound(err):
				_, err = schemas.Create(ctx, want, metav1.CreateOptions{})
			case err == nil && follows(has, mandatory) && !equality.Semantic.DeepEqual(has.Spec, want.Spec):
				changed := has.DeepCopy()
				changed.Spec = want.Spec
				_, err = schemas.Update(ctx, changed, metav1.UpdateOptions{})
			}
			errs = append(errs, unlessRaced(want.Name, err))
		}
	}
	return errors.Join(errs...)
}

// levelWanted is the spec that a level should have. What the exempt one lends is free.
func levelWanted(want, has *flowcontrolv1.PriorityLevelConfiguration) flowcontrolv1.PriorityLevelConfigurationSpec {
	spec := *want.Spec.DeepCopy()
	if spec.Exempt != nil && has.Spec.Exempt != nil {
		spec.Exempt = has.Spec.Exempt
	}
	return spec
}

// follows reports whether an object is to be as the server has it.
func follows(o metav1.Object, mandatory bool) bool {
	return mandatory || o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true"
}

// unlessRaced is an error that isn't another server's doing the same.
func unlessRaced(name string, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("keep %s: %w", name, err)
}
