package collect

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/diagnose/doctor"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/kube"
)

// Around reads what a namespace, or "" for all, has beside Services, with the user's own rights.
func (s *Source) Around(ctx context.Context, namespace string) (*doctor.Around, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	config = s.WithFirstAnswerTimeout(config)
	a := &doctor.Around{Classes: map[string][]string{}}
	for _, read := range []struct {
		what string
		from func(context.Context, *rest.Config, string, *doctor.Around) error
	}{{"Ingresses and their classes", readIngresses}, {"Gateways and their classes", readGateways}, {"IPAddressPools", readPools}} {
		if err := read.from(ctx, config, namespace, a); err != nil && !apierrors.IsNotFound(err) {
			a.NotRead = append(a.NotRead, fmt.Sprintf("%s: %v", read.what, err))
		}
	}
	return a, nil
}

func readIngresses(ctx context.Context, config *rest.Config, namespace string, a *doctor.Around) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	classes, err := client.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list, err := client.NetworkingV1().Ingresses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	addIngresses(a, pointers(classes.Items), pointers(list.Items))
	return nil
}

func addIngresses(a *doctor.Around, classes []*networkingv1.IngressClass, list []*networkingv1.Ingress) {
	for _, c := range classes {
		a.Classes["Ingress"] = append(a.Classes["Ingress"], c.Name)
		a.Default = a.Default || c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}
	for _, i := range list {
		class := i.Annotations["kubernetes.io/ingress.class"] // which older controllers read
		if i.Spec.IngressClassName != nil {
			class = *i.Spec.IngressClassName
		} else if class != "" {
			continue // it needn't be an object's name
		}
		a.Classed = append(a.Classed, doctor.Classed{Kind: "Ingress", Namespace: i.Namespace, Name: i.Name, Class: class})
	}
}

func readGateways(ctx context.Context, config *rest.Config, namespace string, a *doctor.Around) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	classes, err := client.GatewayV1().GatewayClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list, err := client.GatewayV1().Gateways(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	addGateways(a, pointers(classes.Items), pointers(list.Items))
	return nil
}

func addGateways(a *doctor.Around, classes []*gatewayv1.GatewayClass, list []*gatewayv1.Gateway) {
	for _, c := range classes {
		a.Classes["Gateway"] = append(a.Classes["Gateway"], c.Name)
	}
	for _, g := range list {
		a.Classed = append(a.Classed, doctor.Classed{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name, Class: string(g.Spec.GatewayClassName)})
	}
}

// AroundOf is what objects of requests say of what there is beside Services. Pools are not among them.
func AroundOf(o *ingress.Objects) *doctor.Around {
	a := &doctor.Around{Classes: map[string][]string{}}
	addIngresses(a, o.IngressClasses, o.Ingresses)
	addGateways(a, o.Classes, o.Gateways)
	return a
}

// readPools reads pools and advertisements. They count where the address controller says how it
// is, which it does by a ConfigurationState.
func readPools(ctx context.Context, config *rest.Config, namespace string, a *doctor.Around) error {
	client, err := kube.NewMetalLB(config)
	if err != nil {
		return err
	}
	states := &v1beta1.ConfigurationStateList{}
	if err := client.V1beta1.Get().Resource("configurationstates").Do(ctx).Into(states); err == nil && len(states.Items) > 0 {
		for _, s := range states.Items {
			if !slices.Contains(a.PoolNamespaces, s.Namespace) {
				a.PoolNamespaces = append(a.PoolNamespaces, s.Namespace)
			}
		}
	} else {
		a.PoolNamespaces = []string{v1beta1.DefaultNamespace}
	}
	pools, links, routers := &v1beta1.IPAddressPoolList{}, &v1beta1.L2AdvertisementList{}, &v1beta1.BGPAdvertisementList{}
	for resource, into := range map[string]runtime.Object{"ipaddresspools": pools, "l2advertisements": links, "bgpadvertisements": routers} {
		if err := client.V1beta1.Get().Namespace(namespace).Resource(resource).Do(ctx).Into(into); err != nil {
			return err
		}
	}
	add := func(kind string, o metav1.Object) {
		a.Pools = append(a.Pools, doctor.Pool{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	for i := range pools.Items {
		add("IPAddressPool", &pools.Items[i])
	}
	for i := range links.Items {
		add("L2Advertisement", &links.Items[i])
	}
	for i := range routers.Items {
		add("BGPAdvertisement", &routers.Items[i])
	}
	return nil
}
