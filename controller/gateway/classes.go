package gateway

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// className is the name of the classes that come with Fairway.
const className = "fairway"

// makeClasses makes them, if they aren't there.
func (c *Controller) makeClasses(ctx context.Context) error {
	_, err := c.watch.Gateway.GatewayV1().GatewayClasses().Create(ctx, &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: ingress.Controller},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create GatewayClass %s: %w", className, err)
	}
	_, err = c.watch.Core.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec:       networkingv1.IngressClassSpec{Controller: ingress.IngressController},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("create IngressClass %s: %w", className, err)
	}
	return nil
}

// holdClasses has classes stay as long as Gateways are of them: their deletion would
// end what these serve.
func (c *Controller) holdClasses(ctx context.Context) error {
	used := map[string]bool{}
	for _, g := range c.objects.Gateways {
		used[string(g.Spec.GatewayClassName)] = true
	}
	return each(ctx, index(c.objects.Classes), func(ctx context.Context, _ types.NamespacedName, x *gatewayv1.GatewayClass) error {
		held := slices.Contains(x.Finalizers, gatewayv1.GatewayClassFinalizerGatewaysExist)
		if x.Spec.ControllerName != ingress.Controller || held == used[x.Name] || !held && x.DeletionTimestamp != nil {
			return nil
		}
		n := x.DeepCopy()
		if held {
			n.Finalizers = slices.DeleteFunc(n.Finalizers, func(f string) bool { return f == gatewayv1.GatewayClassFinalizerGatewaysExist })
		} else {
			n.Finalizers = append(n.Finalizers, gatewayv1.GatewayClassFinalizerGatewaysExist)
		}
		if _, err := c.watch.Gateway.GatewayV1().GatewayClasses().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("hold or release GatewayClass: %w", err)
		}
		return nil
	})
}
