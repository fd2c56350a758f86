package apiserver

import (
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWriteCounts counts what a write takes: one transaction, with the Service's
// addresses in it, and one wait for the disk.
func TestWriteCounts(t *testing.T) {
	c := administrator(t, sharedServer(t))
	const writes = 20
	// Whatever else the server writes meanwhile (its own endpoints, say) passes.
	for attempt := range 10 {
		before := syncs(t)
		var first, last int64
		for i := range writes {
			svc, err := c.CoreV1().Services("default").Create(within(t), stageService(attempt*writes+i), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if last, err = strconv.ParseInt(svc.ResourceVersion, 10, 64); err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = last
			}
		}
		transactions, waits := int(last-first)+1, int(syncs(t)-before)
		if transactions == writes && waits == writes {
			return
		}
		t.Logf("%d creates took %d transactions and %d waits for the disk", writes, transactions, waits)
	}
	t.Errorf("a create takes more than one transaction, or more than one wait for the disk")
}

// syncs is how often etcd has written its log through to the disk.
func syncs(t *testing.T) uint64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "etcd_disk_wal_fsync_duration_seconds" {
			return family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("etcd doesn't count its waits for the disk")
	return 0
}
