//go:build systemd

package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// answer is a Service whose one endpoint is a process of the machine's own.
const answer = `
apiVersion: v1
kind: Service
metadata: {name: answer}
spec: {clusterIP: 10.96.0.77, ports: [{port: 80, targetPort: 8000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: answer, labels: {kubernetes.io/service-name: answer}}
addressType: IPv4
endpoints: [{addresses: [10.78.0.12]}]
ports: [{port: 8000}]
`

// aGateway has no route.
const aGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec: {gatewayClassName: fairway, listeners: [{name: http, port: 80, protocol: HTTP}]}
`

// answering is the unit of that process.
const answering = `[Service]
ExecStart=/usr/bin/perl -MIO::Socket::INET -e '$$l = IO::Socket::INET->new(Listen => 5, LocalPort => 8000, ReuseAddr => 1) or die; while ($$c = $$l->accept) { print $$c "here\n"; close $$c }'
[Install]
WantedBy=multi-user.target
`

const (
	ask   = "exec 3<>/dev/tcp/10.96.0.77/80 && cat <&3"
	ready = "fairway kubectl get node two -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status}'"
)

// TestSystemd has a systemd that is a machine's first process run the units: a
// server as a user of its own, and a machine that has joined.
func TestSystemd(t *testing.T) {
	debian, program := os.Getenv("FAIRWAY_SYSTEMD"), os.Getenv("FAIRWAY")
	if debian == "" || program == "" {
		t.Fatal("FAIRWAY_SYSTEMD and FAIRWAY name a Debian system and the program: `make check NAME=systemd` makes them")
	}
	m := newMachines(t, debian)
	one, two := m.machine("one", 11, program), m.machine("two", 12, program)
	serverAsUnit(one)
	joinAsUnit(one, two)
	if t.Failed() {
		return
	}
	restarts(one, two)
	bootsAlone(one, two)
	leaves(one, two)
	otherUnits(one, two)
	upAndPurge(one)
}

// serverAsUnit: what install says is true, with the rights of the unit only.
func serverAsUnit(one *machine) {
	one.t.Helper()
	one.sh("find / -xdev | sort >/var/tmp/before; getent passwd | sort >/var/tmp/users")
	out := one.sh("/root/fairway install server --bind-address 0.0.0.0 --advertise-address 10.78.0.11")
	if !strings.Contains(out, "fairway-server.service runs") {
		one.t.Errorf("install says %q", out)
	}
	one.soon("fairway kubectl get --raw /readyz", "ok")
	if who := one.sh("ps -o user= -p $(systemctl show -P MainPID fairway-server)"); who != "fairway" {
		one.t.Errorf("the server runs as %q", who)
	}
	one.sh("test $(stat -c %U:%a /var/lib/fairway) = fairway:700")
	if warned := one.sh("journalctl -u fairway-server --no-pager --output cat | grep -E 'level=(WARN|ERROR)' || true"); warned != "" {
		one.t.Errorf("a healthy server warns:\n%s", warned)
	}
}

func joinAsUnit(one, two *machine) {
	one.t.Helper()
	token := strings.Fields(one.sh("fairway token create --ttl 1h 2>/dev/null"))[0]
	if err := os.WriteFile(filepath.Join(two.root, "etc/systemd/system/answering.service"), []byte(answering), 0o600); err != nil {
		one.t.Fatal(err)
	}
	two.sh("systemctl enable --now answering")
	out := two.sh("install -m 755 /root/fairway /usr/local/bin/fairway && echo " + token + " | fairway join https://10.78.0.11:6443 --token-file - --mode nftables --systemd")
	if !strings.Contains(out, "joined; fairway-agent.service runs the agent") {
		two.t.Errorf("join says %q", out)
	}
	one.soon(ready, "True")
	if err := os.WriteFile(filepath.Join(one.root, "root/answer.yaml"), []byte(answer), 0o600); err != nil {
		one.t.Fatal(err)
	}
	one.sh("fairway kubectl apply -f /root/answer.yaml")
	two.soon(ask, "here")
	two.sh("systemctl is-enabled fairway-agent")
}

// restarts: of either unit by hand, by systemd after a kill, and for as long as
// it takes where it can't start.
func restarts(one, two *machine) {
	one.t.Helper()
	two.sh("systemctl stop fairway-agent")
	two.sh("! pgrep -x fairway && " + ask) // the kernel goes on forwarding
	const begun = "journalctl -u fairway-agent --no-pager --output cat | grep -c 'Services are in force'"
	two.sh("systemctl start fairway-agent")
	two.soon(begun, "2")
	two.sh("systemctl restart fairway-agent")
	two.soon(begun, "3")
	two.sh("kill -9 $(systemctl show -P MainPID fairway-agent)")
	two.soon("systemctl is-active fairway-agent && test $(systemctl show -P NRestarts fairway-agent) = 1 && "+ask, "here")

	one.sh("systemctl restart fairway-server")
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.sh("kill -9 $(systemctl show -P MainPID fairway-server)")
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.sh("systemctl stop fairway-server && ! pgrep -x fairway")
	// Another program has its port for longer than systemd tries by default.
	one.sh(`systemd-run --unit taken perl -MIO::Socket::INET -e '$$l = IO::Socket::INET->new(Listen => 1000, LocalPort => 6443, ReuseAddr => 1) or die; sleep 1000'`)
	one.soon("timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/6443' && echo taken", "taken")
	one.sh("systemctl start fairway-server")
	one.soon("systemctl show -P NRestarts fairway-server", "8")
	one.sh("systemctl stop taken")
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.soon(ready, "True")
}

// bootsAlone: a machine that boots while no server answers serves what it knew, and
// a server that boots has its objects.
func bootsAlone(one, two *machine) {
	one.t.Helper()
	one.powerOff("systemctl poweroff")
	two.powerOff("systemctl reboot")
	two.boot()
	two.soon(ask, "here")
	two.soon("journalctl -b -u fairway-agent --no-pager --output cat", "no server answers")
	one.boot()
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.soon(ready, "True")
	one.sh("fairway kubectl patch service answer --type merge -p '{\"spec\":{\"ports\":[{\"port\":81,\"targetPort\":8000}]}}'")
	two.soon(strings.Replace(ask, "/80", "/81", 1), "here")
	// The same command installs a newer version in place, with the same options.
	one.sh("/root/fairway install server")
	one.soon("tr '\\0' ' ' </proc/$(systemctl show -P MainPID fairway-server)/cmdline", "--advertise-address=10.78.0.11")
	one.soon(ready, "True")
}

func leaves(one, two *machine) {
	one.t.Helper()
	out := two.sh("fairway leave")
	if !strings.Contains(out, "node two: deleted") {
		two.t.Errorf("leave says %q", out)
	}
	two.sh("! pgrep -x fairway && test -z \"$(nft list ruleset)\" && test ! -e /etc/systemd/system/fairway-agent.service")
	if state, _ := two.try("systemctl is-active fairway-agent"); state != "inactive" {
		two.t.Errorf("after leave its unit is %q", state)
	}
	one.sh("! fairway kubectl get node two")
}

// otherUnits: an agent, DNS and a gateway with a kubeconfig that was put there, as
// the Debian package has them.
func otherUnits(one, two *machine) {
	one.t.Helper()
	kubeconfig, err := os.ReadFile(filepath.Join(one.root, "var/lib/fairway/admin.kubeconfig"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(two.root, "etc/fairway"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(two.root, "etc/fairway/kubeconfig"), kubeconfig, 0o600)
	}
	if err != nil {
		one.t.Fatal(err)
	}
	two.sh("/root/fairway install agent --mode nftables")
	one.soon(ready, "True")
	two.soon(strings.Replace(ask, "/80", "/81", 1), "here")
	for _, role := range []string{"dns", "gateway"} {
		unit, err := os.ReadFile("systemd/fairway-" + role + ".service")
		if err == nil {
			err = os.WriteFile(filepath.Join(two.root, "etc/systemd/system/fairway-"+role+".service"), unit, 0o600)
		}
		if err != nil {
			one.t.Fatal(err)
		}
		two.sh("systemctl start fairway-" + role)
		two.sh("sleep 3; test \"$(systemctl show -P NRestarts fairway-" + role + ")\" = 0 && systemctl is-active fairway-" + role)
	}
	gatewayIsReplaced(one, two)
	two.sh("systemctl stop fairway-dns && rm /etc/systemd/system/fairway-gateway.service /etc/systemd/system/fairway-dns.service")
	two.sh("fairway uninstall --purge")
	two.sh("! pgrep -x fairway && test -z \"$(nft list ruleset)\" && test ! -e /etc/systemd/system/fairway-agent.service")
}

// gatewayIsReplaced: a reload has another process serve, which reads its credential
// anew. A stop ends all processes of the gateway, and systemd kills none: after a
// reload, and in the midst of one.
func gatewayIsReplaced(one, two *machine) {
	one.t.Helper()
	if err := os.WriteFile(filepath.Join(one.root, "root/gateway.yaml"), []byte(aGateway), 0o600); err != nil {
		one.t.Fatal(err)
	}
	one.sh("fairway kubectl apply -f /root/gateway.yaml && rm /root/gateway.yaml")
	one.soon("fairway kubectl get service gw-fairway -o jsonpath='{.spec.ports[0].targetPort}'", "20")
	port := one.sh("fairway kubectl get service gw-fairway -o jsonpath='{.spec.ports[0].targetPort}'")
	serves := func() {
		one.t.Helper()
		two.soon("exec 3<>/dev/tcp/127.0.0.1/"+port+" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && head -1 <&3", "404 Not Found")
	}
	serves()
	reload := func() string {
		before := two.sh("systemctl show -P MainPID fairway-gateway")
		two.sh("systemctl reload fairway-gateway")
		return "test $(systemctl show -P MainPID fairway-gateway) != " + before + " && systemctl is-active fairway-gateway"
	}
	stop := func(when string) {
		one.t.Helper()
		two.sh("systemctl stop fairway-gateway")
		state := two.sh("systemctl show -P ActiveState -P Result fairway-gateway | tr '\n' ' '; pgrep -af '[f]airway gateway' || true")
		if strings.TrimSpace(state) != "inactive success" && strings.TrimSpace(state) != "success inactive" {
			one.t.Errorf("stop %s: %s\n%s", when, state, two.sh("journalctl -u fairway-gateway --no-pager --output cat | tail -40"))
		}
	}
	two.soon(reload(), "active")
	serves()
	if who := two.sh("ps -o user= -p $(systemctl show -P MainPID fairway-gateway)"); strings.HasPrefix(who, "root") {
		one.t.Errorf("the gateway runs as %q", who)
	}
	stop("after a reload")
	for _, pause := range []string{"0", "0.2", "1"} {
		two.sh("systemctl start fairway-gateway")
		serves()
		reload()
		two.sh("sleep " + pause)
		stop("in the midst of a reload, after " + pause + " s")
	}
	if killed := two.sh("journalctl -u fairway-gateway --no-pager --output cat | grep -E 'SIGKILL|status=9' || true"); killed != "" {
		one.t.Errorf("systemd killed: %s", killed)
	}
}

// upAndPurge: the data of a server is that of `up`, and in the end the machine is
// as it was.
func upAndPurge(one *machine) {
	one.t.Helper()
	one.sh("fairway uninstall && ! pgrep -x fairway")
	one.sh("/root/fairway install up --mode nftables")
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.soon("fairway status", "one")
	one.soon("ps -eo uid,args | grep -- '[-]-only default/gw'", "10260 ")
	one.sh("systemctl restart fairway-up")
	one.soon("fairway kubectl get service answer -o name", "service/answer")
	one.sh("fairway uninstall --purge && rm -r /root/answer.yaml /root/.kube")
	one.sh("test -z \"$(nft list ruleset)\"")
	left := one.sh("find / -xdev | sort | diff /var/tmp/before - | grep -vE ' /(var/(log|lib/systemd|tmp)|tmp|etc/(.pwd.lock|[a-z]*-$))' | grep '^[<>]'; getent passwd | sort | diff /var/tmp/users -")
	if left != "" {
		one.t.Errorf("left or taken by a purge:\n%s", left)
	}
}
