package nftables

import (
	"regexp"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
)

// TestRoom has sets that begin with room for many elements take more than that.
func TestRoom(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := synthetic(3000, 3) // 9,000 slots and backends
	apply(t, p, table, false)
	checkObjects(t, p, table)
	size := regexp.MustCompile(`map slots4 {[^}]*size (\d+)`).FindStringSubmatch(nft(t, "list", "maps", "inet"))
	switch {
	case kernel.AtLeast(6, 5) && (size == nil || size[1] != "1073741824"):
		t.Errorf("the size of slots4 is %q", size)
	case !kernel.AtLeast(6, 5) && size != nil:
		t.Errorf("the kernel can't change the size of a set, but slots4 has one: %s", size[1])
	}
	table = synthetic(9000, 3)
	apply(t, p, table, false)
	checkObjects(t, p, table)
	apply(t, newPlane(t, kernel.Options{}), table, false) // another process
	checkObjects(t, p, table)
}
