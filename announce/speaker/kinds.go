package speaker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// statusKind writes the objects of one kind that say what this node announces by
// one protocol: an object for each Service.
type statusKind struct {
	n                          *Speaker
	resource, prefix, protocol string
	listed                     bool
	written                    map[string]string // what each object says, by its name
}

// write brings the objects in line with the report. Without deleting, those of what this
// node no longer announces stay.
func (k *statusKind) write(ctx context.Context, report announce.Report, deletes bool) {
	if !k.listed {
		k.written = map[string]string{}
		k.listed = k.list(ctx)
	}
	where := map[string][]string{} // interfaces or peers, by Service
	for _, a := range report.Addresses {
		if a.Since.IsZero() || a.Protocol != k.protocol {
			continue
		}
		for _, service := range a.Services {
			places := a.Peers
			if k.protocol == announce.Layer2 {
				places = []string{a.Interface}
			}
			where[service] = append(where[service], places...)
		}
	}
	wanted := map[string]bool{}
	for service, places := range where {
		slices.Sort(places)
		name := k.name(service)
		wanted[name] = true
		k.writeOne(ctx, name, service, slices.Compact(places))
	}
	for name := range k.written {
		if wanted[name] || !deletes {
			continue
		}
		err := k.n.metallb.V1beta1.Delete().Namespace(k.n.namespace).Resource(k.resource).Name(name).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			k.n.log.Warn("an outdated status object of this node was not deleted", "resource", k.resource, "name", name, "error", err)
			continue
		}
		delete(k.written, name)
	}
}

// name says whose the object is: a node may write no others.
func (k *statusKind) name(service string) string {
	sum := sha256.Sum256([]byte(service))
	return k.prefix + k.n.node + "." + hex.EncodeToString(sum[:5])
}

// list takes in what an earlier process wrote.
func (k *statusKind) list(ctx context.Context) bool {
	list := &metav1.PartialObjectMetadataList{}
	body, err := k.n.metallb.V1beta1.Get().Namespace(k.n.namespace).Resource(k.resource).
		Param("labelSelector", v1beta1.LabelNode+"="+k.n.node).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, list)
	}
	if err != nil {
		if !apierrors.IsNotFound(err) {
			k.n.log.Warn("this node's old status objects can't be listed", "resource", k.resource, "error", err)
		}
		return apierrors.IsNotFound(err)
	}
	for _, o := range list.Items {
		k.written[o.Name] = "of before"
	}
	return true
}

func (k *statusKind) writeOne(ctx context.Context, name, service string, places []string) {
	before := k.written[name]
	if before == fmt.Sprint(places) {
		return
	}
	namespace, of, _ := strings.Cut(service, "/")
	object, status := k.object(name, namespace, of, places)
	err := k.n.metallb.V1beta1.Post().Namespace(k.n.namespace).Resource(k.resource).Body(object).Do(ctx).Error()
	if err == nil || apierrors.IsAlreadyExists(err) {
		err = k.n.patchStatus(ctx, k.resource, name, status)
	}
	if err != nil {
		k.n.log.Warn("this node's status object was not written", "resource", k.resource, "service", service, "error", err)
		return
	}
	k.written[name] = fmt.Sprint(places)
	if before == "" {
		k.n.mu.Lock()
		events := k.n.events
		k.n.mu.Unlock()
		events.ReportNormal(types.NamespacedName{Namespace: namespace, Name: of}, reasonAssigned,
			fmt.Sprintf("announcing from node %q with protocol %q", k.n.node, k.protocol))
	}
}

// object is a Service's object, and its status, which is written by itself.
func (k *statusKind) object(name, namespace, service string, places []string) (object runtime.Object, status any) {
	meta := metav1.ObjectMeta{Name: name, Namespace: k.n.namespace, Labels: map[string]string{
		v1beta1.LabelNode: k.n.node, v1beta1.LabelServiceName: service, v1beta1.LabelServiceNamespace: namespace,
	}}
	if k.protocol == announce.BGP {
		s := v1beta1.BGPStatus{Node: k.n.node, ServiceName: service, ServiceNamespace: namespace, Peers: places}
		return &v1beta1.ServiceBGPStatus{ObjectMeta: meta, Status: s}, s
	}
	s := v1beta1.L2Status{Node: k.n.node, ServiceName: service, ServiceNamespace: namespace}
	for _, i := range places {
		s.Interfaces = append(s.Interfaces, v1beta1.InterfaceInfo{Name: i})
	}
	return &v1beta1.ServiceL2Status{ObjectMeta: meta, Status: s}, s
}
