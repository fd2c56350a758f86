package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// The chains that operators know from kube-proxy, by its names.
const (
	servicesChain    = "KUBE-SERVICES"
	nodePortsChain   = "KUBE-NODEPORTS"
	postroutingChain = "KUBE-POSTROUTING"
	markMasqChain    = "KUBE-MARK-MASQ"
	forwardChain     = "KUBE-FORWARD"
	firewallChain    = "KUBE-PROXY-FIREWALL"
	externalChain    = "KUBE-EXTERNAL-SERVICES"
)

// The constant chains that kube-proxy doesn't have.
const (
	reservedChain  = "KUBE-RESERVED"      // refuses what nothing serves
	localMasqChain = "KUBE-LOCAL-MASQ"    // masquerades what the node itself answers
	invalidChain   = "KUBE-INVALID"       // drops what conntrack lost track of
	localnetChain  = "KUBE-LOCALNET"      // guards 127.0.0.0/8 while it is routed
	nodeAddrsChain = "KUBE-NODE-ADDRS"    // many node addresses
	masqChain      = "KUBE-MASQ-"         // + who is masqueraded
	dispatchChain  = "KUBE-SVCS-"         // + prefix: part of KUBE-SERVICES
	refusalChain   = "KUBE-REFUSE-"       // + prefix: part of KUBE-SERVICES in table filter
	externalsChain = "KUBE-EXT-REFUSE-"   // + prefix: part of KUBE-EXTERNAL-SERVICES
	guardChain     = "KUBE-FW-GUARD-"     // + prefix: part of KUBE-PROXY-FIREWALL
	exemptChain    = "KUBE-EXEMPT-"       // + prefix: part of KUBE-RESERVED
	nodeAddrChain  = "KUBE-NODE-ADDRS-"   // + prefix: part of KUBE-NODE-ADDRS
	portRangeChain = nodePortsChain + "-" // + protocol and range: part of KUBE-NODEPORTS
)

// The chains of one Service port, each with a hash behind.
const (
	poolChain      = "KUBE-SVC-" // chooses a backend
	localPoolChain = "KUBE-SVL-" // chooses one of this node's backends
	entryChain     = "KUBE-EXT-" // decides by origin
	sourcesChain   = "KUBE-FW-"  // lets in allowed sources
	backendChain   = "KUBE-SEP-" // translates to one backend
)

// hash16 is kube-proxy's way of making chain names of at most 28 bytes
// (XT_EXTENSION_MAXNAMELEN in linux/netfilter/x_tables.h, less one).
func hash16(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// poolName names the chain that chooses among the pool's backends.
func poolName(id model.PoolID) string {
	prefix := poolChain
	if id.Local {
		prefix = localPoolChain
	}
	return prefix + hash16(id.Name+id.Proto.String())
}

// backendName names the chain of one backend in a pool. A backend has one in
// each pool it is in: who was last sent to it is remembered per pool.
func backendName(id model.PoolID, b model.Backend) string {
	text := id.Name + id.Proto.String() + b.AddrPort().String()
	if id.Local {
		text += " local"
	}
	return backendChain + hash16(text)
}

// dispatchName names the chain for all keys that share the first bits with k.
func dispatchName(prefix string, addrBits int, k key, bits int) string {
	if addrBits == 0 { // node ports: protocol and range
		lo, length := k.portRange(addrBits, bits)
		return fmt.Sprintf("%s%s-%d-%d", prefix, strings.ToUpper(k.proto(addrBits).String()), lo, length)
	}
	if addrBits == 32 && bits <= addrBits {
		return fmt.Sprintf("%s%X-%d", prefix, masked(k[:4], bits), bits)
	}
	return prefix + hash16(fmt.Sprintf("%x-%d", masked(k[:], bits), bits))[:min(16, 28-len(prefix))]
}

// masked is b with all but the first bits cleared.
func masked(b []byte, bits int) []byte {
	out := make([]byte, len(b))
	copy(out, b[:bits/8])
	if rest := bits % 8; rest != 0 {
		out[bits/8] = b[bits/8] & (0xff << (8 - rest))
	}
	return out
}

// quote writes a string as iptables-save does: in quotes unless it is a word.
// What could end the string early never gets in.
func quote(s string) string {
	word := s != ""
	clean := []byte(s)
	if len(clean) > maxComment {
		clean = clean[:maxComment]
	}
	for i, c := range clean {
		switch {
		case c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case c < ' ' || c > '~' || c == '"' || c == '\\' || c == '\'':
			clean[i] = '_'
		default:
			word = false
		}
	}
	if word {
		return string(clean)
	}
	return `"` + string(clean) + `"`
}

// maxComment is the longest comment (XT_MAX_COMMENT_LEN in
// linux/netfilter/xt_comment.h, less the final NUL).
const maxComment = 255

// comment is a rule's match that says what the rule is for.
func comment(s string) string { return "-m comment --comment " + quote(s) }
