package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// contender is a proxy that is measured, in the node's network.
type contender struct {
	name          string
	process       *process
	plain, secure uint16 // ports
	stopped       bool
}

func (c *contender) stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	return c.process.stop()
}

// The ports of what isn't ours.
const (
	haproxyPlain, haproxySecure = 21000, 21001
	nginxPlain, nginxSecure     = 22000, 22001
	silentPlain, silentSecure   = 23000, 23001
	againPlain, againSecure     = 24000, 24001
)

// engineName is what the report calls an engine.
func engineName(engine string) string {
	if engine == "native" {
		return engine
	}
	return engine + " engine"
}

// startEngine starts `fairway gateway` on the node, and waits until it serves.
func (g *gateways) startEngine(ctx context.Context, engine string) (*contender, error) {
	c := &contender{name: engineName(engine), plain: g.ports[80], secure: g.ports[443]}
	return c, g.launch(ctx, c, engine)
}

func (g *gateways) again(ctx context.Context, c *contender) error {
	c.stopped = false
	return g.launch(ctx, c, strings.TrimSuffix(c.name, " engine"))
}

func (g *gateways) launch(ctx context.Context, c *contender, engine string) error {
	args := []string{"gateway", "--kubeconfig", g.api.kubeconfig, "--node-name", nodeName, "--processes", "one", "--handover", "", "--shutdown-delay", "0s", "--drain-timeout", "1s"}
	if engine != "native" {
		args = append(args, "--engine", engine)
	}
	var err error
	if c.process, err = start(g.site.node.Host, "gateway-"+engine, g.options.Dir, exec.Command(g.options.Fairway, args...)); err != nil {
		return err
	}
	return g.serves(ctx, c)
}

// serves waits until a contender answers for a host in the middle of the table.
func (g *gateways) serves(ctx context.Context, c *contender) error {
	err := poll(ctx, startTimeout, 20*time.Millisecond, func() error {
		if err := c.process.alive(); err != nil {
			return permanent{err}
		}
		connection, err := g.dial(ctx, c.plain)
		if err != nil {
			return err
		}
		defer connection.Close()
		status, _, err := askRaw(connection, bufio.NewReader(connection), g.hot[len(g.hot)/2].name+".example.com", "/")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("answer %d", status)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s to serve: %w (log: %s)", c.name, err, tail(c.process.log))
	}
	return nil
}

// dial connects to a port of the node from the node.
func (g *gateways) dial(ctx context.Context, port uint16) (net.Conn, error) {
	return g.site.node.DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
}

// The other two haproxies: one tells endpoints nothing of who asks, and one tries a
// request that no endpoint answered again, as engines do.
const (
	silentName = "haproxy that adds no header"
	againName  = "haproxy that tries again"
)

// startHAProxy starts haproxy with as many backends, found by a map, as a person
// would write it for speed. It tells endpoints who asks, as engines do, and believes
// nothing that clients say of that.
func (g *gateways) startHAProxy(ctx context.Context) (*contender, error) {
	return g.haproxyWith(ctx, &contender{name: "haproxy", plain: haproxyPlain, secure: haproxySecure}, "", forwarded)
}

// forwarded are haproxy's rules that tell endpoints who asks.
func forwarded(scheme string) string {
	return "  http-request set-header X-Forwarded-For %[src]\n  http-request set-header X-Forwarded-Host %[req.hdr(host)]\n  http-request set-header X-Forwarded-Proto " + scheme + "\n"
}

// startAgain starts haproxy that keeps each request until it is answered.
func (g *gateways) startAgain(ctx context.Context) (*contender, error) {
	return g.haproxyWith(ctx, &contender{name: againName, plain: againPlain, secure: againSecure}, "  option redispatch 1\n  retries 6\n  retry-on conn-failure empty-response\n", forwarded)
}

// startSilent starts haproxy that passes requests on as they are.
func (g *gateways) startSilent(ctx context.Context) (*contender, error) {
	return g.haproxyWith(ctx, &contender{name: silentName, plain: silentPlain, secure: silentSecure}, "", func(string) string { return "" })
}

// haproxyWith starts haproxy with more defaults, and rules that depend on the scheme.
func (g *gateways) haproxyWith(ctx context.Context, c *contender, defaults string, rules func(scheme string) string) (*contender, error) {
	folder := fmt.Sprintf("haproxy-%d", c.plain)
	dir := filepath.Join(g.options.Dir, folder)
	var hosts, config strings.Builder
	fmt.Fprintf(&config, `global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
%sfrontend plain
  bind 127.0.0.1:%d
%s  use_backend %%[req.hdr(host),lower,map(%s/hosts)]
frontend secure
  bind 127.0.0.1:%d ssl crt %s/pair.pem alpn h2,http/1.1
%s  use_backend %%[req.hdr(host),lower,map(%s/hosts)]
`, defaults, c.plain, rules("http"), dir, c.secure, dir, rules("https"), dir)
	for _, s := range g.api.world.services {
		fmt.Fprintf(&hosts, "%s.example.com %s\n", s.name, s.name)
		fmt.Fprintf(&config, "backend %s\n  server a %s:%d\n", s.name, s.addrs[0], answerPort)
	}
	err := writeAll(dir, map[string]string{"haproxy.cfg": config.String(), "hosts": hosts.String(), "pair.pem": g.certificate.cert + g.certificate.key})
	if err != nil {
		return nil, err
	}
	if c.process, err = start(g.site.node.Host, folder, g.options.Dir, exec.Command("haproxy", "-db", "-f", filepath.Join(dir, "haproxy.cfg"))); err != nil {
		return nil, err
	}
	return c, g.serves(ctx, c)
}

// startNginx starts nginx with a server and an upstream for each host.
func (g *gateways) startNginx(ctx context.Context) (*contender, error) {
	dir := filepath.Join(g.options.Dir, "nginx")
	var config strings.Builder
	fmt.Fprintf(&config, `daemon off;
user root;
worker_processes auto;
pid %s/nginx.pid;
error_log stderr crit;
events { worker_connections 10000; }
http {
access_log off;
server_names_hash_max_size 16384;
server_names_hash_bucket_size 128;
keepalive_requests 1000000000;
ssl_certificate %s/cert.pem;
ssl_certificate_key %s/key.pem;
ssl_protocols TLSv1.3;
proxy_http_version 1.1;
proxy_set_header Connection "";
proxy_set_header Host $host;
proxy_set_header X-Forwarded-For $remote_addr;
proxy_set_header X-Forwarded-Host $host;
proxy_set_header X-Forwarded-Proto $scheme;
`, dir, dir, dir)
	for _, s := range g.api.world.services {
		fmt.Fprintf(&config, "upstream %s { server %s:%d; keepalive 32; keepalive_requests 1000000000; }\n", s.name, s.addrs[0], answerPort)
		fmt.Fprintf(&config, "server { listen 127.0.0.1:%d; listen 127.0.0.1:%d ssl; server_name %s.example.com; location / { proxy_pass http://%s; } }\n", nginxPlain, nginxSecure, s.name, s.name)
	}
	config.WriteString("}\n")
	if err := writeAll(dir, map[string]string{"nginx.conf": config.String(), "cert.pem": g.certificate.cert, "key.pem": g.certificate.key}); err != nil {
		return nil, err
	}
	c := &contender{name: "nginx", plain: nginxPlain, secure: nginxSecure}
	var err error
	if c.process, err = start(g.site.node.Host, "nginx", g.options.Dir, exec.Command("nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))); err != nil {
		return nil, err
	}
	return c, g.serves(ctx, c)
}

func writeAll(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}
