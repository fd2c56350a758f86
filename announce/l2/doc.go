// Package l2 announces addresses on the links of this node: it answers ARP and
// NDP for those that it owns, and agrees with the other nodes of a link on who
// owns which.
package l2
