//go:build !agentonly

package diagnosis

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/examine"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/diagnose/flows/live"
	"github.com/fairway-net/fairway/diagnose/web"
	"github.com/fairway-net/fairway/internal/version"
	"github.com/fairway-net/fairway/kube"
)

// webFlags are the flags of web, as typed.
type webFlags struct {
	doctorFlags // as doctor is asked from the page
	port        uint16
	share       time.Duration
	address     netip.Addr
}

func Web() *cobra.Command {
	f := webFlags{doctorFlags: doctorFlags{explainFlags: explainFlags{agent: config.ForMode("nftables")}}}
	c := &cobra.Command{
		Use:   "web",
		Short: "Serve a page on this machine that says what explain, doctor and flows say",
		Long: `Serve a page on this machine's loopback address: what is not well, every Service
with its endpoints and the reasons, nodes, changes, and connections as they come.
It reads the API with your kubeconfig, which never reaches the browser, and writes
nothing. Ctrl-C ends it.

The URL that is printed has a token in it and is good once: for the browser that
opens it first. Press Enter for another one. From another machine, forward the
port by ssh.

With --share 8h others see the page too, without rights of their own: by a link that
is good for so long, at --address, by HTTPS with a certificate that is made for it.
The page shows them what your kubeconfig lets you see, but neither connections nor
Secrets, and connects to nothing for them. Press Enter for another link: the one
before is good no more.`,
		Example: `  fairway web
  sudo fairway web --port 8411                  # as root: with agents and connections
  sudo fairway web --share 8h --address 10.77.0.11   # a link for the others of the house
  ssh -L 8411:127.0.0.1:8411 node1 sudo fairway web --port 8411`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	source.Add(c.Flags(), &f.objects)
	_ = c.Flags().MarkHidden("namespace") // the page has all of them
	c.Flags().Uint16Var(&f.port, "port", 0, "port at 127.0.0.1; without this, any that is free")
	c.Flags().StringVar(&f.domain, "cluster-domain", "cluster.local", "domain of the cluster's names")
	c.Flags().DurationVar(&f.share, "share", 0, "serve the page to others for so long, by a link with a token")
	c.Flags().TextVar(&f.address, "address", netip.Addr{}, "with --share: address of this machine at which they come")
	c.MarkFlagsRequiredTogether("share", "address")
	f.agent.AddMeaning(c.Flags())
	f.agent.AddServiceCIDRs(c.Flags())
	return c
}

func (f *webFlags) run(cmd *cobra.Command) error {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the page says what can't be read
	if f.address.IsValid() {
		return f.runShared(cmd)
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(f.port))))
	if err != nil {
		return fmt.Errorf("--port: %w", err)
	}
	at := netip.MustParseAddrPort(listener.Addr().String())
	page := web.New(config, at.Port())
	printURL := func() {
		fmt.Fprintf(cmd.OutOrStdout(), "http://%s/?token=%s\n", at, page.Token())
	}
	fmt.Fprintln(cmd.OutOrStdout(), "Open this URL in a browser; it is good once. Ctrl-C ends the page.")
	printURL()
	go eachLine(os.Stdin, printURL) // until the process ends: reading can't be ended before
	return page.Serve(cmd.Context(), listener)
}

// mostShared bounds how long a link is good.
const mostShared = 7 * 24 * time.Hour

// runShared serves the page to others until its time is over.
func (f *webFlags) runShared(cmd *cobra.Command) error {
	if f.share < time.Minute || f.share > mostShared {
		return fmt.Errorf("--share %s: must be from 1m to %s", f.share, mostShared)
	}
	if f.address.IsUnspecified() || f.address.IsMulticast() {
		return fmt.Errorf("--address %s: must be an address of this machine", f.address)
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	config.Examine, config.Flows = nil, nil
	until := time.Now().Add(f.share)
	certificate, fingerprint, err := web.Certificate(f.address, until)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", netip.AddrPortFrom(f.address, f.port).String(), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return fmt.Errorf("--address, --port: %w", err)
	}
	at := netip.MustParseAddrPort(listener.Addr().String())
	page := web.NewShared(config, at.Port(), f.address, until)
	printURL := func() {
		fmt.Fprintf(cmd.OutOrStdout(), "https://%s/?token=%s\n", at, page.Token())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Whoever has this link sees the page until %s; Enter makes another link. The browser doesn't know the certificate, whose SHA-256 fingerprint is\n%s\n", until.Format(time.DateTime), fingerprint)
	printURL()
	go eachLine(os.Stdin, printURL)
	ctx, cancel := context.WithDeadline(cmd.Context(), until)
	defer cancel()
	return page.Serve(ctx, listener)
}

// eachLine calls do for each line until there are no more.
func eachLine(in io.Reader, do func()) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		do()
	}
}

// config is what the page is made from.
func (f *webFlags) config() (web.Config, error) {
	api, err := f.objects.Config()
	if err != nil {
		return web.Config{}, err
	}
	client, err := kube.Client(kube.Tune(f.objects.WithFirstAnswerTimeout(api)))
	if err != nil {
		return web.Config{}, err
	}
	agent, err := f.agent.Config()
	if err != nil {
		return web.Config{}, err
	}
	config := web.Config{
		Client: client, Server: api.Host, Version: version.Version, Domain: f.domain, Compile: agent.Compile,
		Agents: func(ctx context.Context) []agentlink.Found { return f.source().Agents(ctx, "") }, InForce: f.source().InForce, Examine: f.examineService, Flows: f.followFlows,
		Beside: func(ctx context.Context, services []*corev1.Service) []doctor.ServiceReport {
			return examine.Beside(ctx, f.source(), services)
		},
	}
	if f.objects.Kubeconfig != "" {
		config.Flags = "--kubeconfig " + shellQuote(f.objects.Kubeconfig)
	}
	return config, nil
}

// shellQuote is a word as a shell reads it.
func shellQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// examineService is `fairway doctor svc/NAME -n NAMESPACE --from FROM`.
func (f *webFlags) examineService(ctx context.Context, namespace, name, from string) (*doctor.Report, error) {
	x, err := f.examiner()
	if err != nil {
		return nil, err
	}
	x.Source = f.source()
	x.Source.Namespace, x.From = namespace, from
	return x.Service(ctx, "svc/"+name)
}

// source is one of its own for each question: it remembers that the API couldn't be asked.
func (f *webFlags) source() *collect.Source {
	source := f.objects
	return &source
}

// followFlows is `fairway flows --follow`.
func (f *webFlags) followFlows(ctx context.Context, names func() flows.Names, tell func(flows.Record), note func(string)) error {
	r := live.Request{Source: f.source(), Follow: true, Names: names, Note: note}
	r.Tell = func(one flows.Record) error {
		tell(one)
		return nil
	}
	return r.Run(ctx, "")
}
