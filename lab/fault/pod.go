package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// tableName is of the table that holds what is wrong, in the pod's namespace.
const tableName = "fairway-lab"

// queueNumber is the pod's queue of packets that are late.
const queueNumber = 77

// BreakPod has packets that come to a pod over an interface suffer a fault, until
// MendPod or the end of ctx. Packets of the pod to itself don't. A fault of before
// is replaced. Unready is no fault of the network: it does nothing here.
func BreakPod(ctx context.Context, ns *netns.NS, link string, kind Kind) error {
	if err := MendPod(ns); err != nil {
		return err
	}
	var suffer []expr.Any
	switch kind {
	case Silent:
		suffer = []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	case Lossy:
		suffer = []expr.Any{
			&expr.Numgen{Register: 1, Modulus: 100, Type: unix.NFT_NG_RANDOM},
			// Comparing is bytewise, so the number is brought into network order.
			&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, LossPercent)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}
	case Slow:
		if err := delay(ctx, ns, queueNumber); err != nil {
			return err
		}
		suffer = []expr.Any{&expr.Queue{Num: queueNumber, Total: 1, Flag: expr.QueueFlagBypass}}
		if err := addRule(ns, link, suffer); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		suffer = queueOfIPTables() // a kernel with that one only
	default:
		return nil
	}
	return addRule(ns, link, suffer)
}

// queueOfIPTables is the target NFQUEUE of iptables (struct xt_NFQ_info_v2 in
// linux/netfilter/xt_NFQUEUE.h): the queue, the number of queues, and that packets
// pass where nobody listens.
func queueOfIPTables() []expr.Any {
	var info []byte
	for _, field := range []uint16{queueNumber, 1, 1} {
		info = binary.NativeEndian.AppendUint16(info, field)
	}
	unknown := xt.Unknown(info)
	return []expr.Any{&expr.Target{Name: "NFQUEUE", Rev: 2, Info: &unknown}}
}

// addRule adds the table with a rule for what comes in over an interface, before
// connection tracking sees it.
func addRule(ns *netns.NS, link string, suffer []expr.Any) error {
	c, err := nftables.New(nftables.WithNetNSFd(ns.Fd()))
	if err != nil {
		return fmt.Errorf("open nf_tables of %s: %w", ns, err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	chain := c.AddChain(&nftables.Chain{
		Name: "arriving", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	arriving := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceData(link)},
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(arriving, suffer...)})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add nftables table %s to %s: %w", tableName, ns, err)
	}
	return nil
}

// interfaceData is a name as the kernel compares it (IFNAMSIZ).
func interfaceData(name string) []byte {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return data
}

// MendPod takes away what BreakPod did. Without a fault it does nothing.
func MendPod(ns *netns.NS) error {
	c, err := nftables.New(nftables.WithNetNSFd(ns.Fd()))
	if err != nil {
		return fmt.Errorf("open nf_tables of %s: %w", ns, err)
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	if err := c.Flush(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete nftables table %s of %s: %w", tableName, ns, err)
	}
	return nil
}
