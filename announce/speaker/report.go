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

// stateAgain is how often the ConfigurationState is written again, whether it changed or not.
const stateAgain = time.Minute

// reportDelay merges changes of many addresses into one look. A look that took long is
// followed by a longer pause: it is nothing that should keep the node from announcing.
const (
	reportDelay = 100 * time.Millisecond
	reportShare = 5 // times as long as the last look took
)

// keepReported keeps this node's ServiceL2Statuses, ServiceBGPStatuses and
// ConfigurationState at what is announced, until ctx is done.
func (n *Speaker) keepReported(ctx context.Context) {
	kinds := []*statusKind{
		{n: n, resource: "servicel2statuses", prefix: "l2-", protocol: announce.Layer2},
		{n: n, resource: "servicebgpstatuses", prefix: "bgp-", protocol: announce.BGP},
	}
	const notYet = "not yet"
	stated := notYet
	again := time.NewTicker(n.stateAgain)
	defer again.Stop()
	for took := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			stated = notYet // somebody may have deleted it
		case <-n.changed:
		}
		n.watchWays()
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(reportDelay, reportShare*took)):
		}
		// The state is written first: a command that waits until this node announces nothing learns from
		// it which connections go on.
		began := time.Now()
		report := n.status()
		took = time.Since(began)
		n.tellConflicts(&report)
		written := true
		if text := fmt.Sprint(report.Faults, report.Notes, report.Unfit, report.Kept, report.Uncounted); text != stated {
			if err := n.writeState(ctx, &report); err != nil {
				n.log.Warn("this node's ConfigurationState could not be written", "error", err)
				time.AfterFunc(time.Second, func() { signal(n.changed) })
				written = false
			} else {
				stated = text
			}
		}
		for _, k := range kinds {
			k.write(ctx, report, written)
		}
	}
}

// reasonConflict is the reason of Events about addresses that another machine has.
const reasonConflict = "addressConflict"

// tellConflicts writes an Event for each Service whose address a machine has that is none of the
// cluster's, once for as long as it is so.
func (n *Speaker) tellConflicts(report *announce.Report) {
	now := map[string]bool{}
	n.mu.Lock()
	events := n.events
	n.mu.Unlock()
	for _, a := range report.Addresses {
		if a.Conflict == "" {
			continue
		}
		for _, service := range a.Services {
			text := fmt.Sprintf("the machine with MAC %s has the address %s, too: give it another one, or take the address out of the pool", a.Conflict, a.Address)
			key := service + " " + text
			if now[key] = true; n.conflictsTold[key] {
				continue
			}
			namespace, name, _ := strings.Cut(service, "/")
			events.ReportService(types.NamespacedName{Namespace: namespace, Name: name}, reasonConflict, text)
		}
	}
	n.conflictsTold = now
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

// writeState writes what of the configuration this node can't do, and what it still has to
// do with addresses that it announced.
func (n *Speaker) writeState(ctx context.Context, report *announce.Report) error {
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
	status := map[string]any{"result": v1beta1.ConfigurationValid, "errorSummary": nil, "conditions": conditionsOf(report)}
	if faults := strings.Join(report.Faults, "; "); faults != "" {
		status["result"], status["errorSummary"] = v1beta1.ConfigurationInvalid, faults
	}
	return n.patchStatus(ctx, "configurationstates", name, status)
}

func conditionsOf(report *announce.Report) (conditions []metav1.Condition) {
	add := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
	if faults := strings.Join(report.Faults, "; "); faults != "" {
		add("AnnouncementsValid", metav1.ConditionFalse, "InvalidConfiguration", faults)
	} else {
		add("AnnouncementsValid", metav1.ConditionTrue, "Valid", cmp.Or(strings.Join(report.Notes, "; "), "all is in force"))
	}
	if report.Unfit != "" {
		add(announce.ConditionMay, metav1.ConditionFalse, "Unfit", report.Unfit)
	} else {
		add(announce.ConditionMay, metav1.ConditionTrue, "Fit", "the node may announce")
	}
	switch left := sum(report.Kept); {
	case left > 0:
		add(announce.ConditionKeeps, metav1.ConditionTrue, "ConnectionsLeft",
			strconv.Itoa(left)+" connections of addresses that other nodes announce now go on by way of this node")
	case report.Uncounted > 0:
		add(announce.ConditionKeeps, metav1.ConditionUnknown, "Counting",
			"connections of "+strconv.Itoa(report.Uncounted)+" addresses that this node gives up are being counted")
	}
	return conditions
}
