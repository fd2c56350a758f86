package registry

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/storage"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

// serviceREST serves Services: the generic registry, with addresses and node
// ports chosen before the write and claimed by it.
type serviceREST struct {
	*REST
	allocator *allocator.Allocator
}

// writeAttempts bounds how often a write is repeated because another server
// took the chosen address in the same instant.
const writeAttempts = 8

// request is what one write needs to remember between the registry's hooks.
type request struct {
	// name is the Service's, for errors.
	name string
	plan *allocator.Plan
	// asked maps the claims that the user asked for to the error that says
	// they can't be had.
	asked map[string]*field.Error
}

type requestKey struct{}

func newServiceREST(r *REST, a *allocator.Allocator) *serviceREST {
	s := &serviceREST{REST: r, allocator: a}
	r.BeginCreate = func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return finish, s.begin(ctx, obj.(*corev1.Service), nil, options.DryRun)
	}
	r.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return finish, s.begin(ctx, obj.(*corev1.Service), old.(*corev1.Service), options.DryRun)
	}
	return s
}

// finish has nothing to do: reservations end with the request.
func finish(context.Context, bool) {}

// Create implements rest.Creater.
func (s *serviceREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	var out runtime.Object
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		out, err = s.Store.Create(ctx, obj.DeepCopyObject(), validate, options)
		return err
	})
	return out, err
}

// Update implements rest.Updater.
func (s *serviceREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	var (
		out     runtime.Object
		created bool
	)
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		out, created, err = s.REST.Update(ctx, name, info, create, update, forceCreate, options)
		return err
	})
	return out, created, err
}

// attempt writes until no number chosen was claimed by somebody else first.
func (s *serviceREST) attempt(ctx context.Context, write func(context.Context) error) error {
	var err error
	for range writeAttempts {
		req := &request{plan: s.allocator.Plan()}
		err = write(context.WithValue(ctx, requestKey{}, req))
		req.plan.Release()
		var claimed *storage.ClaimedError
		if !errors.As(err, &claimed) {
			return err
		}
		if refusal := req.asked[claimed.Key]; refusal != nil {
			return invalidService(req.name, field.ErrorList{refusal})
		}
	}
	return apierrors.NewInternalError(err)
}

// begin completes and validates a Service and gives it its numbers. It runs
// before the strategy's own hooks, which therefore have nothing left to do.
func (s *serviceREST) begin(ctx context.Context, svc, old *corev1.Service, dryRun []string) error {
	req, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		return apierrors.NewInternalError(errors.New("write to Services outside of a request"))
	}
	// The storage may call again, with a newer old object.
	req.plan.Release()
	req.name, req.asked = svc.Name, map[string]*field.Error{}
	if old != nil {
		svc.Status = old.Status
		if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			// As Kubernetes since 1.29: nobody else would take it away.
			svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		}
		keepAllocated(svc, old)
		syncClusterIPs(svc, old)
		dropForType(svc, old)
	} else {
		svc.Status = corev1.ServiceStatus{}
		syncClusterIPs(svc, nil)
	}
	if errs := initFamilies(svc, old, s.allocator.Families()); len(errs) > 0 {
		return invalidService(svc.Name, errs)
	}
	errs := slices.DeleteFunc(upstream.Service(completed(svc, old), old), isAllocated)
	if len(errs) > 0 {
		return invalidService(svc.Name, errs)
	}
	a := allocation{svc: svc, old: old, request: req, dryRun: len(dryRun) > 0}
	if errs := a.run(); len(errs) > 0 {
		return invalidService(svc.Name, errs)
	}
	return nil
}

// completed is a Service with the metadata that an update need not name, and that the registry fills in later.
func completed(svc, old *corev1.Service) *corev1.Service {
	if old == nil {
		return svc
	}
	out := *svc
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	if out.UID == "" {
		out.UID = old.UID
	}
	if out.CreationTimestamp.IsZero() {
		out.CreationTimestamp = old.CreationTimestamp
	}
	return &out
}

// isAllocated says whether what a Service lacks is what allocation gives it.
func isAllocated(err *field.Error) bool {
	return err.Type == field.ErrorTypeRequired && err.Field == "spec.healthCheckNodePort"
}

func invalidService(name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), name, errs)
}
