// Package l2 announces addresses on the links of this node. Each address has
// one owner on a link; the nodes of the link agree on it by adverts. The owner
// answers ARP and NDP for the address.
package l2
