// Package legacytrace tells which rules of iptables-legacy (the kernel's ip_tables and
// ip6_tables) a packet passes that something else has marked to be traced: nf_tables'
// "meta nftrace set 1" marks it for them, too. No rule is added for it.
//
// The kernel tells of such rules by the logger of an address family (the setting
// net.netfilter.nf_log.2 or .10), which here is nfnetlink_log, whose group 0 one socket in a
// network namespace reads. Neither is a thing that ends with a process. So a process
// of its own, the keeper, changes the setting, reads the group for all traces in the
// namespace, and puts the setting back when the last of them goes, however it does.
// If the keeper is killed, those that it read for put the setting back. If all are killed in
// one instant, a mark stays with the setting, by which the next keeper, an agent or
// `fairway cleanup` put it back (Sweep).
//
//   - keeper.go: the keeper
//   - setting.go: the setting
//   - mark.go: what it was, for as long as it is another one
//   - group.go: the group of nfnetlink_log
//   - client.go: the process that traces
//   - message.go: what the keeper sends it
//
// Everything works in the network namespace of the calling thread.
package legacytrace
