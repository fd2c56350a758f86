package packet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel/netevents"
)

// changedLinks are the interfaces that have changed since somebody looked.
type changedLinks struct {
	mu    sync.Mutex
	links map[int]bool
	all   bool
	some  chan struct{} // has room for one
}

// note adds an interface; all says that any may have changed.
func (c *changedLinks) note(index int, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		c.links = map[int]bool{}
	}
	c.links[index], c.all = true, c.all || all
	select {
	case c.some <- struct{}{}:
	default: // somebody will look anyway
	}
}

func (c *changedLinks) take() (links map[int]bool, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	links, all = c.links, c.all
	c.links, c.all = nil, false
	return links, all
}

// message notes the interface that a message of the kernel is about.
func (c *changedLinks) message(m syscall.NetlinkMessage) {
	switch {
	case m.Header.Type == unix.RTM_DELLINK:
		c.note(0, true)
	case m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg:
		c.note(int(nl.DeserializeIfInfomsg(m.Data).Index), false)
	case (m.Header.Type == unix.RTM_NEWADDR || m.Header.Type == unix.RTM_DELADDR) && len(m.Data) >= unix.SizeofIfAddrmsg:
		c.note(int(nl.DeserializeIfAddrmsg(m.Data).Index), false)
	}
}

// follow brings interfaces to what they should be as they come and change. What
// changes while it does so is looked at together. When the kernel couldn't tell
// all, every interface is looked at anew.
func (p *Path) follow(ctx context.Context) error {
	events, err := netevents.Open(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("follow interfaces: %w", err)
	}
	changed := &changedLinks{some: make(chan struct{}, 1)}
	p.done.Go(func() {
		err := events.Run(ctx, netevents.Handler{Message: changed.message, Lost: func() { changed.note(0, true) }})
		if err != nil {
			slog.Warn("changes of interfaces are no longer noticed until the next comparison", "error", err)
			p.drift()
		}
	})
	p.done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed.some:
			}
			if err := p.syncChanged(changed.take()); err != nil {
				slog.Warn("interfaces could not be updated", "error", err)
				p.drift()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
	})
	return nil
}

// syncChanged brings some interfaces to what they should be, or all.
func (p *Path) syncChanged(links map[int]bool, all bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all {
		return p.syncAll()
	}
	addresses, err := p.addresses()
	if err != nil {
		return err
	}
	if err := p.syncDefault(); err != nil {
		return err
	}
	var errs []error
	for index := range links {
		errs = append(errs, p.syncOne(index, addresses[index]))
	}
	return errors.Join(errs...)
}

// syncOne is sync for an interface that may have gone.
func (p *Path) syncOne(index int, addresses []netlink.Addr) error {
	l, err := p.netlink.LinkByIndex(index)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find interface %d: %w", index, err)
	}
	var master netlink.Link
	if of := l.Attrs().MasterIndex; of != 0 {
		if master, err = p.netlink.LinkByIndex(of); err != nil && !isGone(err) {
			return fmt.Errorf("find interface %d: %w", of, err)
		}
	}
	return p.sync(l, kindOf(l, master), addresses)
}
