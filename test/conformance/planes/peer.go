package planes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// pair has the plane on peer too.
func (r *Run) pair() error {
	if r.paired || r.kind != r.first {
		return errors.New("the plane is on peer already, or was switched")
	}
	r.paired = true
	if err := r.startPeer(); err != nil {
		return err
	}
	return r.applyAll()
}

func (r *Run) startPeer() (err error) {
	r.peer, err = r.topo.StartPeer(r.kind, filepath.Join(r.stateDir, peerName))
	return err
}

// via has the client's packets for Services come in at the node or at peer, as if a
// router had another idea, or the address had moved.
func (r *Run) via(name string) error {
	if r.topo == nil {
		return nil
	}
	r.moved = name == peerName
	return r.topo.reachServices("client", name)
}

// removePeer takes the plane off peer.
func (r *Run) removePeer() error {
	if r.peer == nil {
		return nil
	}
	return errors.Join(r.peer.Remove(), os.RemoveAll(filepath.Join(r.stateDir, peerName)))
}

// applyAll has the plane apply what is compiled, on peer too if it is there.
func (r *Run) applyAll() error {
	if err := r.process.Apply(r.table, false); err != nil || r.peer == nil {
		return err
	}
	if err := r.peer.Apply(r.cluster.PeerTable(), false); err != nil {
		return fmt.Errorf("on peer: %w", err)
	}
	return nil
}
