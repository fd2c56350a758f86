package addresses

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/fairway-net/fairway/controller/addresses/allocator"
)

// TestMetrics: pools' counts are shown under MetalLB's names, and go with the pool.
func TestMetrics(t *testing.T) {
	shown := func() (list []string) {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) == 1 && m.GetLabel()[0].GetName() == "pool" && m.GetLabel()[0].GetValue() == "of-this-test" {
					list = append(list, fmt.Sprint(f.GetName(), " ", m.GetGauge().GetValue()))
				}
			}
		}
		return list
	}
	poolCounted("of-this-test", allocator.Counts{AssignedIPv4: 3, AssignedIPv6: 1, AvailableIPv4: 251, AvailableIPv6: 17})
	want := []string{"metallb_allocator_addresses_in_use_total 4", "metallb_allocator_addresses_total 272"}
	if got := shown(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	poolGone("of-this-test")
	if got := shown(); len(got) > 0 {
		t.Errorf("a pool that is gone: %q", got)
	}
}
