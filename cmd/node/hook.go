//go:build !agentonly

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/diagnose/collect"
	names "github.com/fairway-net/fairway/dns/outside"
	"github.com/fairway-net/fairway/hook"
)

func Hook() *cobra.Command {
	var flags hookFlags
	c := &cobra.Command{
		Use:   "hook (--class CLASS | --selector LABELS | --all) (--exec COMMAND | --webhook URL | --template FILE --out FILE | --dns-server HOST)",
		Short: "Drive another load balancer or a DNS server: pass it the state of Services and each change",
		Long: `Hand the full desired state of some Services, with a generation and what has changed, to a command, a URL,
a template or a DNS server (RFC 2136). Changes of 50 ms are merged; what fails is tried again; of several
processes one does the work. docs/how-to/hooks.md has the format, examples/hooks what drives haproxy, nginx, nftables and a device.`,
		Example: `  fairway hook --class example.lan/haproxy --exec 'examples/hooks/haproxy/haproxy-hook --socket /run/haproxy/admin.sock'
  fairway hook --selector expose=nginx --template nginx.conf.tmpl --out /etc/nginx/conf.d/fairway.conf --check 'nginx -t' --reload 'systemctl reload nginx'
  fairway hook --all --dns-server 10.77.0.53 --dns-zone example.lan --dns-key /etc/fairway/dns.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context()) },
	}
	flags.add(c.Flags())
	return c
}

// hookFlags are the flags of a hook, as typed.
type hookFlags struct {
	objects              collect.Source
	class, selector      string
	all                  bool
	exec, webhook        string
	headers              []string
	template, out, check string
	reload               string
	dnsServer, dnsZone   string
	dnsKey, dnsOwner     string
	dnsTTL, timeout      time.Duration
	changedOnly          bool
	leaseName            string
}

func (f *hookFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	flags.StringVar(&f.class, "class", "", "Services of type LoadBalancer with this loadBalancerClass; the hook's answers set their addresses")
	flags.StringVar(&f.selector, "selector", "", "Services with these labels, of any type")
	flags.BoolVar(&f.all, "all", false, "all Services of type LoadBalancer")
	flags.StringVar(&f.exec, "exec", "", "command that gets each state as one line of JSON on standard input, and may answer on standard output")
	flags.StringVar(&f.webhook, "webhook", "", "URL that each state is sent to with POST")
	flags.StringArrayVar(&f.headers, "webhook-header-file", nil, "file with headers for the URL, NAME: VALUE, one a line: credentials, say")
	flags.StringVar(&f.template, "template", "", "Go template of a file, with consul-template's functions")
	flags.StringVar(&f.out, "out", "", "the file that --template becomes")
	flags.StringVar(&f.check, "check", "", "command that must end with 0 before the file is replaced; {} in it is the new file")
	flags.StringVar(&f.reload, "reload", "", "command to run after the file has changed")
	flags.StringVar(&f.dnsServer, "dns-server", "", "DNS server that takes updates (RFC 2136), HOST or HOST:PORT")
	flags.StringVar(&f.dnsZone, "dns-zone", "", "its zone for the names of load balancer addresses")
	flags.StringVar(&f.dnsKey, "dns-key", "", "file with the key that updates are signed with, as tsig-keygen writes it")
	flags.StringVar(&f.dnsOwner, "dns-owner", "fairway", "tells this cluster's records from those of others in the same zone")
	flags.DurationVar(&f.dnsTTL, "dns-ttl", names.DefaultTTL, "how long clients may keep the records")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "timeout of a command, a request or an update")
	flags.BoolVar(&f.changedOnly, "changed-only", false, "hand on only the Services that changed, after the first time")
	flags.StringVar(&f.leaseName, "lease", "", `name of the Lease in kube-system that one of several processes works by; default fairway-hook and the class; "none" takes none`)
}

func (f *hookFlags) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config := hook.Config{ChangedOnly: f.changedOnly, Log: log}
	var err error
	if config.Selection, err = f.selection(); err != nil {
		return err
	}
	if config.Target, err = f.target(log); err != nil {
		return err
	}
	if _, isDNS := config.Target.(*hook.DNSUpdate); isDNS && f.changedOnly {
		return errors.New("--changed-only: a DNS server needs all")
	}
	if config.Client, err = f.objects.Client(); err != nil {
		return err
	}
	if config.Lease, err = f.lease(); err != nil {
		return err
	}
	return hook.Run(ctx, config)
}

func (f *hookFlags) selection() (s hook.Selection, err error) {
	if f.class == "" && f.selector == "" && !f.all {
		return s, errors.New("which Services? Give --class, --selector or --all")
	}
	if f.selector != "" {
		if s.Labels, err = labels.Parse(f.selector); err != nil {
			return s, fmt.Errorf("--selector %q: %w", f.selector, err)
		}
	}
	s.Class, s.LoadBalancers = f.class, f.all
	return s, nil
}

// target is the one that flags name.
func (f *hookFlags) target(log *slog.Logger) (hook.Target, error) {
	var targets []hook.Target
	if f.exec != "" {
		targets = append(targets, &hook.Exec{Command: f.exec, Timeout: f.timeout})
	}
	if f.webhook != "" {
		w, err := f.webhookTarget()
		if err != nil {
			return nil, err
		}
		targets = append(targets, w)
	}
	if f.template != "" {
		if f.out == "" {
			return nil, errors.New("--template: needs --out, the file that it becomes")
		}
		targets = append(targets, &hook.Template{File: f.template, Out: f.out, Check: f.check, Reload: f.reload, Timeout: f.timeout})
	}
	if f.dnsServer != "" {
		d, err := f.dnsTarget(log)
		if err != nil {
			return nil, err
		}
		targets = append(targets, d)
	}
	if len(targets) != 1 {
		return nil, fmt.Errorf("give one of --exec, --webhook, --template and --dns-server, not %d", len(targets))
	}
	return targets[0], nil
}

func (f *hookFlags) webhookTarget() (hook.Target, error) {
	u, err := url.Parse(f.webhook)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--webhook %q: must be an http or https URL", f.webhook)
	}
	w := &hook.Webhook{URL: f.webhook, Timeout: f.timeout, Header: http.Header{}, Client: hook.NewClient()}
	for _, file := range f.headers {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--webhook-header-file: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			name, value, some := strings.Cut(line, ":")
			if !some {
				return nil, fmt.Errorf("--webhook-header-file %s: a line must be NAME: VALUE", file)
			}
			w.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return w, nil
}

func (f *hookFlags) dnsTarget(log *slog.Logger) (hook.Target, error) {
	zone, err := names.Zone(f.dnsZone)
	if err != nil {
		return nil, fmt.Errorf("--dns-zone %w", err)
	}
	if f.dnsTTL < time.Second || f.dnsTTL > 24*time.Hour {
		return nil, fmt.Errorf("--dns-ttl %s: must be between 1s and 24h", f.dnsTTL)
	}
	if f.dnsOwner == "" || strings.ContainsAny(f.dnsOwner, " \",;\\") || len(f.dnsOwner) > 100 {
		return nil, fmt.Errorf("--dns-owner %q: must be a short word", f.dnsOwner)
	}
	d := &hook.DNSUpdate{Server: hook.WithPort(f.dnsServer, "53"), Zone: zone, Owner: f.dnsOwner, TTL: f.dnsTTL, Timeout: f.timeout, Log: log}
	if f.dnsKey != "" {
		if d.Key, err = hook.ReadKey(f.dnsKey); err != nil {
			return nil, fmt.Errorf("--dns-key: %w", err)
		}
	}
	return d, nil
}

// lease names what one process of several works by: another target has another.
func (f *hookFlags) lease() (*controller.Lease, error) {
	if f.leaseName == "none" {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this process for its Lease: %w", err)
	}
	name := f.leaseName
	if name == "" {
		kind := f.class
		if f.dnsServer != "" {
			kind = strings.Trim(f.dnsZone, ".")
		}
		name = strings.Trim("fairway-hook-"+strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
				return r
			}
			return '-'
		}, strings.ToLower(kind)), "-.")
	}
	return &controller.Lease{Namespace: metav1.NamespaceSystem, Name: name, Identity: host + "_" + string(uuid.NewUUID())}, nil
}
