package link

import (
	"errors"
	"log/slog"
	"time"
)

// Cluster is what all links of a node have in common.
type Cluster struct {
	Node         string
	Keys         *Keys
	Incarnations *Incarnations
	Foreign      *Foreign
	Detector     *Detector
}

// Begin is the number under which this node speaks on a link that is opened.
func (c *Cluster) Begin(now time.Time, log *slog.Logger) uint64 {
	n, err := c.Incarnations.Next(now)
	if err != nil {
		log.Warn("if the machine's clock is set back, other nodes may not hear this one for a minute", "error", err)
	}
	return n
}

// Reader reads the frames of a format from the nodes of a cluster, and hands on what is to be
// believed, with the lock held that guards peers. IsNew says of a message that its sender wasn't
// known at that MAC.
func (f *Format[E]) Reader(c *Cluster, peers *Peers, take func(now time.Time, m *Message[E], isNew bool)) func(now time.Time, frame []byte) Take {
	return func(now time.Time, frame []byte) Take {
		source := [6]byte(frame[6:])
		m, err := f.Unmarshal(frame[EtherHead:], c.Keys)
		switch {
		case errors.Is(err, ErrSignature):
			c.Foreign.note(now, source)
			return nil
		case err != nil, m.MAC != source, c.Keys.IsOut(m.Node): // somebody else sends it once more, or who must not
			return nil
		case m.Node == c.Node:
			return Ignore
		}
		return func() bool {
			ok, isNew := peers.Admit(now, &m.Head)
			if ok {
				take(now, m, isNew)
			}
			return ok
		}
	}
}
