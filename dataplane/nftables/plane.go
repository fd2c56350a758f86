package nftables

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/model"
)

// Plane programs nf_tables. See dataplane.Plane for what its methods owe.
type Plane struct {
	options kernel.Options
	expand  model.Expansion
	socket  *socket
	state   *state       // nil if what the kernel holds isn't known
	applied *model.Table // what the rules say
	swept   *model.Table // what connections were brought into line with
	sweeper conntrack.Sweeper
	watch   *watch
	cache   generationCache
	// reader is for those who ask while Apply is at work.
	reading  sync.Mutex
	reader   *socket
	localnet *routelocalnet.Keeper
	// noLocalnet says that node ports at 127.0.0.0/8 can't be served here.
	noLocalnet bool
	loopback   atomic.Bool // there are frontends at 127.0.0.0/8
}

// New opens the plane in the network namespace of the calling thread. It
// changes nothing.
func New(options kernel.Options) (*Plane, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	if err := s.probe(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	reader, err := openSocket()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &Plane{options: options, sweeper: conntrack.Sweeper{Later: options.SweepLater, Tell: options.Swept}, socket: s, reader: reader, localnet: routelocalnet.New(options.StateDirectory(), "nftables"), noLocalnet: !routelocalnet.Possible()}, nil
}

// probe finds out whether this process may ask nf_tables, and whether there is
// one.
func (s *socket) probe() error { return s.readTable(&contents{}) }

func missingNFTables(err error) error {
	return &kernel.MissingError{What: "nf_tables with the inet family (CONFIG_NF_TABLES_INET)", Since: "3.14", Err: err}
}

// Close gives up the plane's sockets. What is in the kernel stays.
func (p *Plane) Close() error {
	p.reading.Lock()
	defer p.reading.Unlock()
	err := errors.Join(p.sweeper.Close(), p.watch.close(), p.socket.close())
	if p.reader != nil {
		err = errors.Join(err, p.reader.close())
		p.reader = nil
	}
	return err
}

// explain says more clearly what kernels mean that lack something.
func explain(err error) error {
	switch {
	case err == nil || kernel.IsMissing(err):
		return err
	case errors.Is(err, unix.EOPNOTSUPP):
		return &kernel.MissingError{What: "what nftables mode needs of nf_tables", Since: "5.13", Err: err}
	}
	return err
}

// Prepare implements dataplane.Plane. There is nothing to prepare.
func (p *Plane) Prepare(context.Context, kernel.Preparation) error { return nil }
