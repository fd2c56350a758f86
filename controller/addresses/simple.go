package addresses

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// SimpleName names the pool of --load-balancer-range and the L2Advertisement
// that has all nodes announce it. They stay when the flag goes: what Services
// have is not taken from them by a restart.
const SimpleName = "fairway"

// prepare makes what the options ask for and reports whether ctx goes on. It
// tries for as long as it takes: definitions may come later than the controller.
func (c *Controller) prepare(ctx context.Context) bool {
	if !c.metallb.Await(ctx) {
		return false
	}
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 15 * time.Second}
	said := ""
	for {
		err := c.makeObjects(ctx)
		if err == nil {
			return true
		}
		if text := err.Error(); backoff.Steps < 4 && text != said { // a namespace may be missing for hours
			c.log.Warn("no addresses can be given yet; trying again", "error", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff.Step()):
		}
	}
}

func (c *Controller) makeObjects(ctx context.Context) error {
	if c.options.MakeNamespace {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.options.Namespace}}
		_, err := c.cluster.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create Namespace %s: %w", c.options.Namespace, err)
		}
	}
	if err := c.makeKey(ctx); err != nil {
		return err
	}
	if len(c.options.Ranges) == 0 {
		return nil
	}
	named := metav1.ObjectMeta{Name: SimpleName, Namespace: c.options.Namespace}
	pool := &v1beta1.IPAddressPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "IPAddressPool"},
		ObjectMeta: named,
		Spec:       v1beta1.IPAddressPoolSpec{Addresses: c.options.Ranges},
	}
	if err := c.ensure(ctx, resourcePools, pool, func() error { return c.replaceRanges(ctx) }); err != nil {
		return err
	}
	advertisement := &v1beta1.L2Advertisement{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "L2Advertisement"},
		ObjectMeta: named,
		Spec:       v1beta1.L2AdvertisementSpec{IPAddressPools: []string{SimpleName}},
	}
	return c.ensure(ctx, "l2advertisements", advertisement, func() error { return nil })
}

// ensure creates an object, or calls exists if it is there.
func (c *Controller) ensure(ctx context.Context, resource string, o runtime.Object, exists func() error) error {
	err := c.metallb.V1beta1.Post().Namespace(c.options.Namespace).Resource(resource).Body(o).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return exists()
	}
	if err != nil {
		return fmt.Errorf("create %s %s/%s: %w", resource, c.options.Namespace, SimpleName, err)
	}
	return nil
}

// replaceRanges brings the pool's addresses in line with the options.
func (c *Controller) replaceRanges(ctx context.Context) error {
	pool := &v1beta1.IPAddressPool{}
	request := c.metallb.V1beta1.Get().Namespace(c.options.Namespace).Resource(resourcePools).Name(SimpleName)
	if err := request.Do(ctx).Into(pool); err != nil {
		return fmt.Errorf("get IPAddressPool %s: %w", SimpleName, err)
	}
	pool.Spec.Addresses = c.options.Ranges
	err := c.metallb.V1beta1.Put().Namespace(c.options.Namespace).Resource(resourcePools).Name(SimpleName).Body(pool).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("update IPAddressPool %s: %w", SimpleName, err)
	}
	return nil
}
