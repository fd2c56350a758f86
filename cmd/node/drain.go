package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/kube"
)

func Drain() *cobra.Command {
	var kubeconfig, namespace string
	var wait, undo bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all announced addresses away from a node, before maintenance",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, metallb, err := adminClients(kubeconfig)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			d := newDrain(client, metallb, args[0], namespace, cmd.OutOrStdout())
			if err := d.mark(ctx, !undo); err != nil || undo || !wait {
				return err
			}
			return d.await(ctx)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "return when other nodes announce all that the node did, and no connection goes by way of it any more")
	c.Flags().BoolVar(&undo, "undo", false, "let the node announce again; addresses stay where they are")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to try and to wait")
	config.AddAnnounceNamespace(c.Flags(), "namespace", &namespace)
	addKubeconfigFlag(c, &kubeconfig)
	return c
}

// drain moves a node's addresses away by a label of its own. The label that load balancers of
// Kubernetes look at stays as somebody set it.
type drain struct {
	node    string
	out     io.Writer
	metallb *kube.MetalLB
	// namespace of MetalLB's objects.
	namespace string
	patch     func(ctx context.Context, body []byte) error
}

func newDrain(client kubernetes.Interface, metallb *kube.MetalLB, node, namespace string, out io.Writer) *drain {
	return &drain{node: node, out: out, metallb: metallb, namespace: namespace, patch: func(ctx context.Context, body []byte) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}}
}

// mark sets the label or takes it away.
func (d *drain) mark(ctx context.Context, away bool) error {
	var value any
	if away {
		value = ""
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{announce.LabelDrained: value}}})
	if err != nil {
		return fmt.Errorf("label Node %s: %w", d.node, err)
	}
	if err := d.patch(ctx, body); err != nil {
		return fmt.Errorf("label Node %s: %w", d.node, err)
	}
	if away {
		fmt.Fprintf(d.out, "node %s is to announce nothing: it has the label %s\n", d.node, announce.LabelDrained)
	} else {
		fmt.Fprintf(d.out, "node %s may announce again, unless it has the label %s, which isn't ours\n", d.node, corev1.LabelNodeExcludeBalancers)
	}
	return nil
}

// unconfirmed is how long the node's agent has to say that it knows of being drained. None
// that announces may be there.
const unconfirmed = 5 * time.Second

// await returns once the node announces nothing any more, and has no connections.
func (d *drain) await(ctx context.Context) error {
	began, said := time.Now(), ""
	for {
		now, err := d.look(ctx, time.Since(began) > unconfirmed)
		switch {
		case err != nil && !isOver(ctx):
			return err
		case err == nil && now == "":
			fmt.Fprintf(d.out, "node %s announces nothing, and has no connections of what it announced\n", d.node)
			return nil
		case err == nil && now != said:
			said = now
			fmt.Fprintf(d.out, "node %s %s\n", d.node, said)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s %s: %w", d.node, said, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// isOver reports whether the time for something is over. Clients say so in their own words
// where the context doesn't yet.
func isOver(ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(until)
}

// look says what the node still has to do with addresses that it announced; "" if nothing.
func (d *drain) look(ctx context.Context, late bool) (string, error) {
	left, err := d.announced(ctx)
	if err != nil {
		return "", err
	}
	if left > 0 {
		return fmt.Sprintf("still announces %d Services", left), nil
	}
	state, err := d.state(ctx)
	if err != nil {
		return "", err
	}
	keeps := meta.FindStatusCondition(state.Status.Conditions, announce.ConditionKeeps)
	switch {
	case keeps != nil && keeps.Status != metav1.ConditionFalse:
		return "announces nothing, but " + keeps.Message, nil
	case !late && !meta.IsStatusConditionFalse(state.Status.Conditions, announce.ConditionMay):
		return "has an agent that doesn't say yet that it knows", nil
	}
	return "", nil
}

// state is what the node's agent says of itself; empty if it says nothing.
func (d *drain) state(ctx context.Context) (state v1beta1.ConfigurationState, err error) {
	body, err := d.metallb.V1beta1.Get().Namespace(d.namespace).Resource("configurationstates").Name("speaker-" + d.node).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &state)
	}
	if err != nil {
		return state, fmt.Errorf("read which connections node %s has: %w", d.node, err)
	}
	return state, nil
}

// announced counts the Services that the node announces, by any protocol.
func (d *drain) announced(ctx context.Context) (int, error) {
	services := map[string]bool{}
	for _, resource := range []string{"servicel2statuses", "servicebgpstatuses"} {
		body, err := d.metallb.V1beta1.Get().Resource(resource).Param("labelSelector", v1beta1.LabelNode+"="+d.node).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		if err == nil {
			err = json.Unmarshal(body, list)
		}
		if err != nil {
			return 0, fmt.Errorf("list what node %s announces: %w", d.node, err)
		}
		for _, o := range list.Items {
			services[o.Labels[v1beta1.LabelServiceNamespace]+"/"+o.Labels[v1beta1.LabelServiceName]] = true
		}
	}
	return len(services), nil
}
