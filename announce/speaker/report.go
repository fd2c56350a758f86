package speaker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// reportDelay merges changes of many addresses into one look.
const reportDelay = 100 * time.Millisecond

// keepReported keeps this node's ServiceL2Statuses, ServiceBGPStatuses and
// ConfigurationState at what is announced, until ctx is done.
func (n *Speaker) keepReported(ctx context.Context) {
	kinds := []*statusKind{
		{n: n, resource: "servicel2statuses", prefix: "l2-", protocol: announce.Layer2},
		{n: n, resource: "servicebgpstatuses", prefix: "bgp-", protocol: announce.BGP},
	}
	stated := "not yet"
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		}
		n.watchWays()
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportDelay):
		}
		report := n.status()
		for _, k := range kinds {
			k.write(ctx, report)
		}
		if text := fmt.Sprint(report.Faults, report.Notes, report.Kept); text != stated {
			if err := n.writeState(ctx, strings.Join(report.Faults, "; "), strings.Join(report.Notes, "; "), report.Kept); err != nil {
				n.log.Warn("no ConfigurationState written", "err", err)
				continue
			}
			stated = text
		}
	}
}

// sum adds up connections.
func sum(connections map[netip.Addr]int) (n int) {
	for _, c := range connections {
		n += c
	}
	return n
}

func (n *Speaker) patchStatus(ctx context.Context, resource, name string, status any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return n.metallb.V1beta1.Patch(types.MergePatchType).Namespace(n.namespace).Resource(resource).
		Name(name).SubResource("status").Body(body).Do(ctx).Error()
}

// writeState writes what of the configuration this node can't do.
func (n *Speaker) writeState(ctx context.Context, faults, notes string, kept map[netip.Addr]int) error {
	name := "speaker-" + n.node
	state := &v1beta1.ConfigurationState{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: n.namespace,
		Labels: map[string]string{v1beta1.LabelComponent: "speaker", v1beta1.LabelNodeName: n.node},
	}}
	err := n.metallb.V1beta1.Post().Namespace(n.namespace).Resource("configurationstates").Body(state).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // MetalLB before 0.16 has no such kind
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ConfigurationState %s: %w", name, err)
	}
	status := map[string]any{"result": v1beta1.ConfigurationValid, "errorSummary": nil}
	condition := metav1.Condition{Type: "AnnouncementsValid", Status: metav1.ConditionTrue, Reason: "Valid", Message: cmp.Or(notes, "all is in force")}
	if faults != "" {
		status["result"], status["errorSummary"] = v1beta1.ConfigurationInvalid, faults
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "InvalidConfiguration", faults
	}
	var conditions []metav1.Condition
	meta.SetStatusCondition(&conditions, condition)
	if left := sum(kept); left > 0 {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: announce.ConditionKeeps, Status: metav1.ConditionTrue, Reason: "ConnectionsLeft",
			Message: strconv.Itoa(left) + " connections of addresses that other nodes announce now go on by way of this node",
		})
	}
	status["conditions"] = conditions
	return n.patchStatus(ctx, "configurationstates", name, status)
}
