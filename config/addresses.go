package config

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/ingress/acme"
	"github.com/fairway-net/fairway/internal/iprange"
)

// Addresses say where Services of type LoadBalancer get their addresses.
type Addresses struct {
	ACME   ACME
	Ranges Ranges
	Class  string
	// Nodes has Gateways answer at the addresses of nodes, where there is no range.
	Nodes bool
}

// Gateways says how Gateways get their addresses.
func (a *Addresses) Gateways() (gateway.Options, error) {
	o := gateway.Options{Classes: true, NodeAddresses: a.Nodes && len(a.Ranges) == 0}
	return o, a.ACME.Apply(&o)
}

// Add adds the flags.
func (a *Addresses) Add(flags *pflag.FlagSet) {
	a.ACME.Add(flags)
	flags.Var(&a.Ranges, "load-balancer-range", "addresses for Services of type LoadBalancer, such as 10.77.0.100-10.77.0.110 or a CIDR, comma separated or repeated; they become a pool announced by all nodes")
	a.addClass(flags)
}

func (a *Addresses) addClass(flags *pflag.FlagSet) {
	flags.StringVar(&a.Class, "lb-class", "", "give addresses only to Services of this loadBalancerClass; \"\" means those without a class")
}

// Options are those of the controller that gives addresses.
func (a *Addresses) Options(serviceCIDRs []netip.Prefix) addresses.Options {
	return addresses.Options{Ranges: a.Ranges, Class: a.Class, ServiceCIDRs: serviceCIDRs, MakeNamespace: true}
}

// Firsts are the first addresses of the ranges.
func (a *Addresses) Firsts() (list []netip.Addr) {
	for _, text := range a.Ranges {
		if r, err := iprange.Parse(text); err == nil { // Set has refused others
			list = append(list, r.From)
		}
	}
	return list
}

// ACME says where certificates come from that Gateways and Ingresses ask for.
type ACME struct{ Directory, Email, Authorities string }

// Add adds the flags.
func (a *ACME) Add(flags *pflag.FlagSet) {
	flags.StringVar(&a.Directory, "acme-directory", "", `URL of the ACME directory from which Gateways and Ingresses with fairway.dev/acme: "true" get certificates; "letsencrypt", "letsencrypt-staging"; none without it. By giving it you agree to the authority's terms of service`)
	flags.StringVar(&a.Email, "acme-email", "", "where the certificate authority writes to")
	flags.StringVar(&a.Authorities, "acme-ca-file", "", "PEM file of who may have signed the ACME directory's own certificate; the system's authorities without it")
}

// Apply sets them; what is wrong is an error that names its flag.
func (a *ACME) Apply(o *gateway.Options) error {
	o.ACME = acme.Options{Directory: a.Directory, Email: a.Email}
	switch a.Directory {
	case "letsencrypt":
		o.ACME.Directory = acme.LetsEncrypt
	case "letsencrypt-staging":
		o.ACME.Directory = acme.LetsEncryptStaging
	}
	if a.Authorities == "" {
		return nil
	}
	text, err := os.ReadFile(a.Authorities)
	if err != nil {
		return fmt.Errorf("--acme-ca-file: %w", err)
	}
	o.ACME.Roots = x509.NewCertPool()
	if !o.ACME.Roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("--acme-ca-file %s: there is no certificate in it", a.Authorities)
	}
	return nil
}
