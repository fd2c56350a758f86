package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/iprange"
)

// Address is a flag's value that is an IP address.
type Address netip.Addr

// String implements pflag.Value.
func (v *Address) String() string {
	if addr := (*netip.Addr)(v); addr.IsValid() {
		return addr.String()
	}
	return ""
}

// Set implements pflag.Value.
func (v *Address) Set(s string) error {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("%q is not an IP address", s)
	}
	*v = Address(addr)
	return nil
}

// Type implements pflag.Value.
func (v *Address) Type() string { return "ip" }

// CIDRs is a flag's value: ranges, comma separated or repeated. The first use
// replaces the default.
type CIDRs struct {
	List *[]netip.Prefix
	Mask bool // take an address within a range for the range, and "" for none
	set  bool
}

// String implements pflag.Value.
func (v *CIDRs) String() string {
	if v.List == nil {
		return ""
	}
	names := make([]string, len(*v.List))
	for i, p := range *v.List {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

// Set implements pflag.Value.
func (v *CIDRs) Set(s string) error {
	if !v.set {
		*v.List, v.set = nil, true
	}
	if s == "" && v.Mask {
		return nil
	}
	for value := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is not a CIDR such as 10.96.0.0/16", value)
		}
		if p != p.Masked() && !v.Mask {
			return fmt.Errorf("%s is an address, not a range: the range of that length is %s", value, p.Masked())
		}
		*v.List = append(*v.List, p.Masked())
	}
	return nil
}

// Type implements pflag.Value.
func (v *CIDRs) Type() string { return "cidrs" }

// Ranges is a flag's value: ranges of addresses such as 10.77.0.100-10.77.0.110 or CIDRs,
// comma separated or repeated.
type Ranges []string

// String implements pflag.Value.
func (v *Ranges) String() string { return strings.Join(*v, ",") }

// Set implements pflag.Value.
func (v *Ranges) Set(s string) error {
	for text := range strings.SplitSeq(s, ",") {
		if _, err := iprange.Parse(text); err != nil {
			return err
		}
		*v = append(*v, strings.TrimSpace(text))
	}
	return nil
}

// Type implements pflag.Value.
func (v *Ranges) Type() string { return "ranges" }

// nodePorts is the value of --nodeport-addresses.
type nodePorts struct {
	of    *compile.NodePortAddresses
	texts []string
}

func (v *nodePorts) String() string { return strings.Join(v.texts, ",") }

func (v *nodePorts) Set(s string) (err error) {
	if s != "" {
		v.texts = append(v.texts, strings.Split(s, ",")...)
	}
	*v.of, err = compile.ParseNodePortAddresses(v.texts)
	return err
}

func (v *nodePorts) Type() string { return "addresses" }

// Listeners is a flag's value: addresses with ports.
type Listeners struct {
	List *[]netip.AddrPort
	set  bool
}

// String implements pflag.Value.
func (v *Listeners) String() string {
	if v.List == nil {
		return ""
	}
	names := make([]string, len(*v.List))
	for i, a := range *v.List {
		names[i] = a.String()
	}
	return strings.Join(names, ",")
}

// Set implements pflag.Value.
func (v *Listeners) Set(s string) error {
	if !v.set {
		*v.List, v.set = nil, true
	}
	for value := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddrPort(value)
		if err != nil {
			return fmt.Errorf("%q is not an address with a port such as 192.0.2.1:53", value)
		}
		*v.List = append(*v.List, a)
	}
	return nil
}

// Type implements pflag.Value.
func (v *Listeners) Type() string { return "addresses" }
