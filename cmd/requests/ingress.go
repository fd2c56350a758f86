package requests

import (
	"context"
	"fmt"
	"io"

	"github.com/fairway-net/fairway/cmd/exit"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/requests"
	"github.com/fairway-net/fairway/ingress/convert"
)

func Ingress() *cobra.Command {
	c := &cobra.Command{Use: "ingress", Short: "Assess Ingresses, and convert them to Gateway API", Args: cobra.NoArgs}
	c.AddCommand(ingressAssessCommand(), ingressConvertCommand())
	return c
}

// ingressFlags say which Ingresses are converted, and to what.
type ingressFlags struct {
	objects collect.Source
	class   string
	all     bool
	convert.Options
}

func ingressConvertCommand() *cobra.Command {
	f := ingressFlags{Options: convert.Options{GatewayClass: "fairway", Gateway: "ingress"}}
	c := &cobra.Command{
		Use:   "convert",
		Short: "Convert Ingresses to Gateways and HTTPRoutes, and name what can't be converted",
		Long: `Write Ingresses as Gateways and HTTPRoutes, to standard output; what has no form
there, or another meaning, is named on standard error. Nothing is changed.

An Ingress whose annotations protect it (auth-…, lists of addresses) is not
converted: without them it would be open to everybody.

The exit code is 1 if anything was named.`,
		Example: `  fairway ingress convert --all-namespaces --class nginx >routes.yaml
  fairway ingress convert -f manifests/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, services, err := f.read(cmd.Context())
			if err != nil {
				return err
			}
			f.Services = services
			result := convert.Convert(list, f.Options)
			for _, line := range result.Left {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			if err := writeConverted(cmd.OutOrStdout(), result); err != nil || len(result.Left) == 0 {
				return err
			}
			return exit.Error{Code: 1}
		},
	}
	flags := c.Flags()
	flags.StringSliceVarP(&f.objects.Files, "filename", "f", nil, `manifests instead of an API: files, folders, or "-" for standard input`)
	flags.StringVar(&f.objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	flags.StringVarP(&f.objects.Namespace, "namespace", "n", corev1.NamespaceDefault, "namespace whose Ingresses the API is asked for")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "ask for those of all namespaces")
	flags.StringVar(&f.class, "class", "", "only Ingresses of this class; all without it")
	flags.StringVar(&f.GatewayClass, "gateway-class", f.GatewayClass, "class of the Gateways")
	flags.StringVar(&f.Gateway, "gateway", f.Gateway, "name of the Gateways, one in each namespace")
	return c
}

// read returns the Ingresses that are asked for, and the Services that they may name.
func (f *ingressFlags) read(ctx context.Context) (list []*networkingv1.Ingress, services map[types.NamespacedName]*corev1.Service, err error) {
	var found []*networkingv1.Ingress
	if len(f.objects.Files) > 0 {
		objects, _, _, err := requests.Objects(f.objects.Files)
		if err != nil {
			return nil, nil, err
		}
		found, services = objects.Ingresses, objects.Services
	} else if found, services, err = f.ask(ctx); err != nil {
		return nil, nil, err
	}
	for _, o := range found {
		class := o.Annotations["kubernetes.io/ingress.class"]
		if o.Spec.IngressClassName != nil {
			class = *o.Spec.IngressClassName
		}
		if f.class == "" || f.class == class {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("no Ingress to convert among %d", len(found))
	}
	return list, services, nil
}

// ask asks the API.
func (f *ingressFlags) ask(ctx context.Context) (list []*networkingv1.Ingress, services map[types.NamespacedName]*corev1.Service, err error) {
	client, err := f.objects.Client()
	if err != nil {
		return nil, nil, err
	}
	namespace := f.objects.Namespace
	if f.all {
		namespace = metav1.NamespaceAll
	}
	found, err := client.NetworkingV1().Ingresses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read Ingresses: %w", err)
	}
	for i := range found.Items {
		list = append(list, &found.Items[i])
	}
	named, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read Services: %w", err)
	}
	services = map[types.NamespacedName]*corev1.Service{}
	for i := range named.Items {
		s := &named.Items[i]
		services[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
	}
	return list, services, nil
}

// writeConverted writes manifests, without the fields that servers fill in.
func writeConverted(w io.Writer, result *convert.Result) error {
	var objects []runtime.Object
	for _, g := range result.Gateways {
		objects = append(objects, g)
	}
	for _, r := range result.Routes {
		objects = append(objects, r)
	}
	for i, o := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		unstructured.RemoveNestedField(fields, "status")
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		data, err := yaml.Marshal(fields)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}
