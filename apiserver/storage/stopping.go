package storage

import (
	"log/slog"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// handOverTime bounds how long a member that leads waits for another one to lead.
// It takes some 100 ms. Without it the others elect a leader after a second.
const handOverTime = 400 * time.Millisecond

// closeTimeout bounds the wait for etcd to stop.
const closeTimeout = 5 * time.Second

// HandOver has another member lead, if this one does: the member is about to end.
// Writes that arrive meanwhile fail. Only the first call does something.
func (b *Backend) HandOver() { b.handOver() }

// handOver waits for handOverTime at most: etcd itself waits for seven seconds for
// a member that may have gone meanwhile.
func handOver(server *etcdserver.EtcdServer) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.TryTransferLeadershipOnShutdown(); err != nil {
			slog.Debug("leadership could not be handed to another server", "error", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(handOverTime):
	}
}

// closeEtcd stops etcd, which has handed over before. One that has failed may hold
// its own locks for ever.
func closeEtcd(server *embed.Etcd) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		server.Server.HardStop() // Close would try once more to hand over
		server.Close()
	}()
	select {
	case <-closed:
	case <-server.Server.StopNotify():
		// The store is closed. What remains is a second for connections of other
		// members, which only new ones would need.
		for _, p := range server.Peers {
			_ = p.Listener.Close() // etcd closes it once more
		}
	case <-time.After(closeTimeout):
		slog.Warn("etcd does not stop; continuing without it")
	}
}
