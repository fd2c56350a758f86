package hook

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// freePort is a port of this machine that nobody listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// backends answer requests with their names, each at a loopback address of its
// own and all at one port, and are returned as where they listen.
func backends(t *testing.T, names ...string) []string {
	t.Helper()
	port := freePort(t)
	var list []string
	for i, name := range names {
		address := fmt.Sprintf("127.0.0.%d:%d", i+1, port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })}
		go func() { _ = server.Serve(l) }() // until it is closed
		t.Cleanup(func() { _ = server.Close() })
		list = append(list, address)
	}
	return list
}

// start runs a program of this machine until the test ends.
func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(name, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait() // killed
		if t.Failed() {
			t.Logf("%s: %s", name, out.String())
		}
	})
	return c
}

// answers asks port until all of want, and nothing else, have answered in a row
// of twenty requests, on a connection each.
func (r *rig) answers(port int, want ...string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	got := map[string]int{}
	defer func() {
		if r.t.Failed() {
			r.t.Logf("port %d answered with %v, want %v", port, got, want)
		}
	}()
	r.until("the right answers", func() bool {
		clear(got)
		for range 20 {
			response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
			if err != nil {
				got[err.Error()]++
				return false
			}
			body, err := io.ReadAll(response.Body)
			if response.Body.Close(); err != nil {
				return false
			}
			got[string(body)]++
		}
		for _, w := range want {
			if got[w] == 0 {
				return false
			}
		}
		return len(got) == len(want)
	})
}

// TestHAProxy runs examples/hooks/haproxy with the real haproxy: endpoints come,
// drain and go without a reload.
func TestHAProxy(t *testing.T) {
	dir := t.TempDir()
	config, socket := dir+"/haproxy.cfg", dir+"/s"
	servers := backends(t, "a", "b", "c")
	a, b, c := servers[0], servers[1], servers[2]
	port, second := freePort(t), freePort(t)
	// A first start, and a reload of what runs then.
	reload := fmt.Sprintf("echo x >>%[1]s/reloads; if [ -e %[1]s/pid ]; then kill -USR2 $(cat %[1]s/pid); else haproxy -W -D -f %[2]s -p %[1]s/pid; fi; for i in $(seq 600); do [ -S %[3]s ] && exit 0; sleep 0.1; done; exit 1", dir, config, socket)
	t.Cleanup(func() { _, _ = exec.Command("sh", "-c", "kill $(cat "+dir+"/pid)").CombinedOutput() }) // it may never have started
	script := fmt.Sprintf("../examples/hooks/haproxy/haproxy-hook --address 127.0.0.1 --config %s --socket %s --reload '%s'", config, socket, reload)
	reloads := func() int { data, _ := os.ReadFile(dir + "/reloads"); return strings.Count(string(data), "x") }
	udp := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
	}
	r := newRig(t, &Exec{Command: script, Timeout: waitTimeout}, nil, service("web", int32(port), udp), slice("web", 1, a, b))
	r.until("an address", func() bool { return r.ingress("web") == "127.0.0.1" })
	r.hears("haproxy balances TCP only")
	r.answers(port, "a", "b")
	before := reloads()
	r.set(slice("web", 1, a+"~", b, c)) // a drains, c is new
	r.answers(port, "b", "c")
	r.set(slice("web", 1, c, a))
	r.answers(port, "a", "c")
	r.set(slice("web", 3, b))
	r.answers(port, "a", "b", "c")
	r.set(slice("web", 3))
	r.answers(port, "a", "c")
	if now := reloads(); now != before {
		t.Errorf("endpoints changed: %d reloads", now-before)
	}
	r.set(service("shop", int32(second)))
	r.set(slice("shop", 1, b))
	r.answers(second, "b")
	r.answers(port, "a", "c")
	if reloads() == before {
		t.Error("a new port, and no reload")
	}
}

// TestNginx renders examples/hooks/nginx for the real nginx.
func TestNginx(t *testing.T) {
	dir := t.TempDir()
	conf := dir + "/fairway.conf"
	port := freePort(t)
	main := fmt.Sprintf("daemon off; pid %[1]s/pid; error_log %[1]s/error.log; events {} http { access_log off; client_body_temp_path %[1]s/t; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s; include %[2]s; }", dir, conf)
	for path, text := range map[string]string{dir + "/nginx.conf": main, conf: ""} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start(t, "nginx", "-c", dir+"/nginx.conf", "-g", "user root;")
	target := &Template{
		File: "../examples/hooks/nginx/fairway.conf.tmpl", Out: conf, Timeout: waitTimeout,
		Reload: "nginx -t -q -c " + dir + "/nginx.conf && kill -HUP $(cat " + dir + "/pid)",
	}
	servers := backends(t, "a", "b")
	a, b := servers[0], servers[1]
	r := newRig(t, target, nil, service("web", int32(port)), slice("web", 2, a, b))
	r.answers(port, "a", "b")
	r.set(slice("web", 2, a, b+"!"))
	r.answers(port, "a")
	r.set(slice("web", 2, a+"!", b+"!"))
	r.answers(port, "no endpoint of default/web is ready\n")
}

// TestNftables renders examples/hooks/nftables for the real nft, which checks it
// against the kernel and changes nothing.
func TestNftables(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: nft asks the kernel")
	}
	out := filepath.Join(t.TempDir(), "router.nft")
	target := &Template{File: "../examples/hooks/nftables/router.nft.tmpl", Out: out, Check: "unshare -n nft -c -f {}", Reload: "unshare -n sh -c 'nft -f " + out + " && nft list table inet fairway_router' >" + out + ".listed", Timeout: waitTimeout}
	external := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7", "2001:db8::7"} }
	six := slice("web", 5, "[fd00::1]:8080")
	r := newRig(t, target, nil, service("web", 80, external), slice("web", 2, "10.0.0.1:8080"), slice("web", 4, "10.0.0.2:9090"), six)
	r.until("the rules", func() bool {
		data, err := os.ReadFile(out + ".listed")
		text := strings.Join(strings.Fields(string(data)), " ")
		return err == nil && strings.Contains(text, "ip daddr 192.0.2.7 tcp dport 80 dnat ip to numgen random mod 3 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 9090, 2 : 10.0.0.2 . 9090 }") &&
			strings.Contains(text, "ip6 daddr 2001:db8::7 tcp dport 80 dnat ip6 to numgen random mod 1 map { 0 : fd00::1 . 8080 }")
	})
}

// named runs BIND with a zone example.lan that a key may change, and returns its address.
func named(t *testing.T) (server, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	keyFile = dir + "/key"
	key, err := exec.Command("tsig-keygen", "fairway-key").Output()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	conf := fmt.Sprintf(`%[1]s
options { directory "%[2]s"; pid-file "%[2]s/pid"; session-keyfile "%[2]s/session"; lock-file none; listen-on port %[3]d { 127.0.0.1; }; listen-on-v6 { none; };
  recursion no; dnssec-validation no; managed-keys-directory "%[2]s"; };
controls { };
zone "example.lan" { type primary; file "%[2]s/zone"; allow-update { key fairway-key; }; allow-transfer { key fairway-key; }; };
`, key, dir, port)
	zone := "$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\ntheirs A 192.0.2.200\n_fairway.old TXT \"heritage=fairway,owner=lab\"\nold A 192.0.2.9\n_fairway.other TXT \"heritage=fairway,owner=another\"\nother A 192.0.2.8\n"
	for path, text := range map[string]string{keyFile: string(key), dir + "/named.conf": conf, dir + "/zone": zone} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start(t, "named", "-g", "-c", dir+"/named.conf", "-n", "1")
	return fmt.Sprintf("127.0.0.1:%d", port), keyFile
}

// TestDNSUpdate keeps names in the real BIND: those of Services come, change and
// go; records of others stay as they are.
func TestDNSUpdate(t *testing.T) {
	server, keyFile := named(t)
	key, err := ReadKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	balanced := func(name string, hostname string, addresses ...string) *corev1.Service {
		return service(name, 80, func(s *corev1.Service) {
			s.Spec.LoadBalancerClass = nil
			if name == "second" { // comes later
				s.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
			} else {
				s.CreationTimestamp = metav1.NewTime(time.Unix(0, 0))
			}
			if hostname != "" {
				s.Annotations = map[string]string{"external-dns.alpha.kubernetes.io/hostname": hostname, "external-dns.alpha.kubernetes.io/ttl": "77"}
			}
			for _, a := range addresses {
				i := corev1.LoadBalancerIngress{IP: a}
				if strings.ContainsAny(a, "gz") {
					i = corev1.LoadBalancerIngress{Hostname: a}
				}
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, i)
			}
		})
	}
	target := &DNSUpdate{Server: server, Zone: "example.lan.", Owner: "lab", Key: key, TTL: 30 * time.Second, Timeout: waitTimeout}
	r := newRig(t, target, func(c *Config) { c.Selection = Selection{LoadBalancers: true}; target.Log = c.Log },
		balanced("web", "", "192.0.2.1", "2001:db8::1"), balanced("shop", "a.example.lan,*.b.example.lan", "192.0.2.2"),
		balanced("thief", "theirs.example.lan", "192.0.2.66"), balanced("second", "other.example.lan,web.example.lan", "192.0.2.67"),
		balanced("far", "", "lb.example.org"), balanced("pending", ""))
	ask := func(name string, qtype uint16) string {
		m := new(dns.Msg)
		m.SetQuestion(name+".example.lan.", qtype)
		answer, _, err := new(dns.Client).Exchange(m, server)
		if err != nil {
			return err.Error()
		}
		var list []string
		for _, rr := range answer.Answer {
			list = append(list, strings.Join(strings.Fields(rr.String())[1:], " "))
		}
		return strings.Join(list, ", ")
	}
	is := func(name string, qtype uint16, want string) {
		t.Helper()
		got := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s is %q", name, got)
			}
		}()
		r.until(name+" is "+want, func() bool { got = ask(name, qtype); return got == want })
	}
	is("web", dns.TypeA, "30 IN A 192.0.2.1")
	is("web", dns.TypeAAAA, "30 IN AAAA 2001:db8::1")
	is("a", dns.TypeA, "77 IN A 192.0.2.2")
	is("any.b", dns.TypeA, "77 IN A 192.0.2.2")
	is("far", dns.TypeCNAME, "30 IN CNAME lb.example.org.")
	is("old", dns.TypeA, "") // of a Service that went while no hook ran
	is("theirs", dns.TypeA, "60 IN A 192.0.2.200")
	is("other", dns.TypeA, "60 IN A 192.0.2.8")
	for _, want := range []string{"DNS name theirs.example.lan: has records already", "DNS name web.example.lan: is Service default/"} {
		r.until(want, func() bool { return strings.Contains(r.log.String(), want) })
	}
	r.set(balanced("web", "", "192.0.2.3"))
	is("web", dns.TypeA, "30 IN A 192.0.2.3")
	is("web", dns.TypeAAAA, "")
	r.set(balanced("shop", "a.example.lan"))
	is("a", dns.TypeA, "")
	is("_fairway.a", dns.TypeTXT, "")
	is("theirs", dns.TypeA, "60 IN A 192.0.2.200")
	target2 := *target
	target2.Key = &TSIG{Name: "wrong.", Algorithm: dns.HmacSHA256, Secret: "d3Jvbmc="}
	if _, err := target2.Deliver(t.Context(), &State{Services: []*Service{{Namespace: "default", Name: "x", Addresses: []string{"192.0.2.1"}}}}); err == nil {
		t.Error("an unknown key is no error")
	}
}
