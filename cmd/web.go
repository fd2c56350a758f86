//go:build !agentonly

package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/diagnose/web"
	"github.com/fairway-net/fairway/kube"
)

// webFlags are the flags of web, as typed.
type webFlags struct {
	doctorFlags // as doctor is asked from the page
	port        uint16
	examining   sync.Mutex // the flags are doctor's meanwhile
}

func webCommand() *cobra.Command {
	f := webFlags{doctorFlags: doctorFlags{explainFlags: explainFlags{agent: agentFlags{mode: "nftables"}}}}
	c := &cobra.Command{
		Use:   "web",
		Short: "Serve a page on this machine that says what explain, doctor and flows say",
		Long: `Serve a page on this machine's loopback address: what is not well, every Service
with its endpoints and the reasons, nodes, changes, and connections as they come.
It reads the API with your kubeconfig, which never reaches the browser, and writes
nothing. Ctrl-C ends it.

The URL that is printed has a token in it and is good once: for the browser that
opens it first. Press Enter for another one. From another machine, forward the
port by ssh.`,
		Example: `  fairway web
  sudo fairway web --port 8411                  # as root: with agents and connections
  ssh -L 8411:127.0.0.1:8411 node1 sudo fairway web --port 8411`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.objects.addAPI(c.Flags())
	_ = c.Flags().MarkHidden("namespace") // the page has all of them
	c.Flags().Uint16Var(&f.port, "port", 0, "port at 127.0.0.1; without this, any that is free")
	c.Flags().StringVar(&f.domain, "cluster-domain", "cluster.local", "domain of the cluster's names")
	f.agent.addMeaning(c.Flags())
	f.agent.addServiceCIDRs(c.Flags())
	return c
}

func (f *webFlags) run(cmd *cobra.Command) error {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the page says what can't be read
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

// eachLine calls do for each line until there are no more.
func eachLine(in io.Reader, do func()) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		do()
	}
}

// config is what the page is made from.
func (f *webFlags) config() (web.Config, error) {
	api, err := f.objects.config()
	if err != nil {
		return web.Config{}, err
	}
	client, err := kube.Client(kube.Tune(f.objects.answers.impatient(api)))
	if err != nil {
		return web.Config{}, err
	}
	agent, err := f.agent.config()
	if err != nil {
		return web.Config{}, err
	}
	objects := f.objects
	config := web.Config{
		Client: client, Server: api.Host, Version: Version, Domain: f.domain, Compile: agent.Compile,
		Agents: func(ctx context.Context) []agentlink.Found { return objects.agents(ctx, "") }, InForce: objects.inForce, Examine: f.examineService, Flows: webFlows{objects}.follow,
	}
	if f.objects.kubeconfig != "" {
		config.Flags = "--kubeconfig " + shellQuote(f.objects.kubeconfig)
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

// examineService is `fairway doctor svc/NAME -n NAMESPACE --from FROM`, one at a time.
func (f *webFlags) examineService(ctx context.Context, namespace, name, from string) (*doctor.Report, error) {
	f.examining.Lock()
	defer f.examining.Unlock()
	f.objects.namespace, f.from = namespace, from
	return f.examine(ctx, []string{"svc/" + name})
}

// webFlows tells of connections to whoever listens.
type webFlows struct{ objects objectFlags }

// follow is `fairway flows --follow`.
func (w webFlows) follow(ctx context.Context, names func() flows.Names, tell func(flows.Record), note func(string)) error {
	all := flowsFlags{objects: w.objects}
	nodes, err := all.nodes(ctx, note)
	if err != nil {
		return err
	}
	failed := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, agent := range nodes {
		group.Go(func() { failed[i] = followFlows(ctx, agent, names, tell, note) })
	}
	group.Wait()
	return errors.Join(failed...)
}

func followFlows(ctx context.Context, agent agentlink.Found, names func() flows.Names, tell func(flows.Record), note func(string)) error {
	w := &flowWriter{agent: agent, names: names, follows: true, note: note, tell: func(r flows.Record) error {
		tell(r)
		return nil
	}}
	return w.run(ctx)
}
