package speaker

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/model"
)

// TestConditions: the state of a node says whether it may announce, and which connections it
// keeps, also while it doesn't know yet.
func TestConditions(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name        string
		report      announce.Report
		keeps       metav1.ConditionStatus // "" if it isn't there
		may         metav1.ConditionStatus
		valid       metav1.ConditionStatus
		keepMessage string
	}{
		{"nothing special", announce.Report{}, "", metav1.ConditionTrue, metav1.ConditionTrue, ""},
		{"drained", announce.Report{Unfit: "label"}, "", metav1.ConditionFalse, metav1.ConditionTrue, ""},
		{"counting", announce.Report{Unfit: "label", Uncounted: 2}, metav1.ConditionUnknown, metav1.ConditionFalse, metav1.ConditionTrue,
			"connections of 2 addresses that this node gives up are being counted"},
		{"some", announce.Report{Unfit: "label", Kept: map[netip.Addr]int{a: 3}, Uncounted: 1}, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionTrue,
			"3 connections of addresses that other nodes announce now go on by way of this node"},
		{"a fault", announce.Report{Faults: []string{"x"}}, "", metav1.ConditionTrue, metav1.ConditionFalse, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conditions := conditionsOf(&c.report)
			status := func(kind string) (metav1.ConditionStatus, string) {
				if found := meta.FindStatusCondition(conditions, kind); found != nil {
					return found.Status, found.Message
				}
				return "", ""
			}
			keeps, message := status(announce.ConditionKeeps)
			if keeps != c.keeps || message != c.keepMessage {
				t.Errorf("keeps %q, %q", keeps, message)
			}
			if may, _ := status(announce.ConditionMay); may != c.may {
				t.Errorf("may announce: %q", may)
			}
			if valid, _ := status("AnnouncementsValid"); valid != c.valid {
				t.Errorf("valid: %q", valid)
			}
		})
	}
}

// TestInside: connections of this machine and of pods are kept by nobody who announces.
func TestInside(t *testing.T) {
	s := &model.Settings{Pods: model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, NodeAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	for text, want := range map[string]bool{"10.244.3.4": true, "192.0.2.7": true, "127.0.0.1": true, "::1": true, "192.0.2.8": false, "2001:db8::1": false} {
		if got := isInside(s, netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
