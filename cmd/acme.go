package cmd

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/ingress/acme"
)

// acmeFlags say where certificates come from that Gateways and Ingresses ask for.
type acmeFlags struct{ directory, email, authorities string }

func (f *acmeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.directory, "acme-directory", "", `URL of the ACME directory from which Gateways and Ingresses with fairway.dev/acme: "true" get certificates; "letsencrypt", "letsencrypt-staging"; none without it. By giving it you agree to the authority's terms of service`)
	flags.StringVar(&f.email, "acme-email", "", "where the certificate authority writes to")
	flags.StringVar(&f.authorities, "acme-ca-file", "", "PEM file of who may have signed the ACME directory's own certificate; the system's authorities without it")
}

func (f *acmeFlags) apply(o *gateway.Options) error {
	o.ACME = acme.Options{Directory: f.directory, Email: f.email}
	switch f.directory {
	case "letsencrypt":
		o.ACME.Directory = acme.LetsEncrypt
	case "letsencrypt-staging":
		o.ACME.Directory = acme.LetsEncryptStaging
	}
	if f.authorities == "" {
		return nil
	}
	text, err := os.ReadFile(f.authorities)
	if err != nil {
		return fmt.Errorf("--acme-ca-file: %w", err)
	}
	o.ACME.Roots = x509.NewCertPool()
	if !o.ACME.Roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("--acme-ca-file %s: there is no certificate in it", f.authorities)
	}
	return nil
}
