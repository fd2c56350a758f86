package userspace

import (
	"errors"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// probeTransparent says why this machine can't show backends their clients'
// addresses; nil if it can.
func probeTransparent() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &kernel.MissingError{What: "sockets", Err: err}
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1), unix.Close(fd))
	if err != nil {
		return &kernel.MissingError{What: "IP_TRANSPARENT", Err: err}
	}
	const validMark = "/proc/sys/net/ipv4/conf/all/src_valid_mark"
	if value, err := os.ReadFile(validMark); err == nil && strings.TrimSpace(string(value)) != "0" {
		return &kernel.MissingError{What: "replies whose mark isn't looked at by rp_filter (" + validMark + " must be 0)"}
	}
	if _, err := kernel.List(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V4) }); err != nil {
		return &kernel.MissingError{What: "policy routing", Err: err}
	}
	c, err := nftables.New()
	if err != nil {
		return &kernel.MissingError{What: "nf_tables", Err: err}
	}
	// Made and deleted in one transaction, of which nobody else sees anything.
	c.DelTable(addTable(c, netfilterTable+"-probe"))
	if err := c.Flush(); err != nil {
		return &kernel.MissingError{What: "nf_tables with nft_socket", Since: "4.18", Err: err}
	}
	return nil
}
