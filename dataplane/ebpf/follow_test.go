package ebpf

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// TestManyInterfaces has many interfaces come at once, and a moment later others: the
// programs soon know all of them.
func TestManyInterfaces(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		p := newPlane(t, options)
		if _, err := p.Apply(context.Background(), webTable(2, 1), kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			t.Fatal(err)
		}
		defer links.Close()
		for round := range 2 {
			for n := range 60 {
				name := fmt.Sprintf("v%d-%d", round, n)
				if err := links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}); err != nil {
					t.Fatal(err)
				}
			}
			// (That they are attached is for processes in the namespace to see: TestPackets.)
			for late := range wait.Tries(30 * time.Second) {
				list, err := links.LinkList()
				if err != nil {
					t.Fatal(err)
				}
				missing := 0
				for _, l := range list {
					if l.Type() == "veth" && p.store.Maps["links"].Lookup(uint32(l.Attrs().Index), make([]byte, 24)) != nil {
						missing++
					}
				}
				if missing == 0 {
					break
				}
				if late {
					t.Fatalf("round %d: %d of %d interfaces are not known", round, missing, len(list))
				}
			}
		}
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	})
}
