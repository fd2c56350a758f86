#!/bin/busybox sh
# The first process of the emulated arm64 machine: it runs `fairway up` in ebpf
# mode, exposes a process, and asks for it through each kind of address: by the
# programs at the socket, by those at the interfaces, and by the program that
# answers ARP while no agent runs. The last line says how it went.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin /proc /sys /dev /tmp /run /var/lib /etc /root
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/root FAIRWAY_SKIP_VM=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
echo /bin/modprobe >/proc/sys/kernel/modprobe
say() { echo "== $*"; }
end() {
	echo "RESULT $*"
	sync
	poweroff -f
}
fail() {
	say "the log of fairway up:"
	tail -n 40 /log
	end "failed: $*"
}
# tries SECONDS COMMAND: until the command succeeds; an emulated machine is slow.
tries() {
	n=$1
	shift
	while ! "$@"; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || return 1
		sleep 1
	done
}
well() { wget -q -O /dev/null http://127.0.0.1:10256/healthz 2>/dev/null || { kill -0 $agent || fail "it ended"; false; }; }
# The port is given: a static busybox that has to look it up crashes.
asks() { [ "$(wget -q -T 5 -O - "http://$1:80/name" 2>/dev/null)" = web ]; }
# outside COMMAND: on another machine of the link.
outside() { nsenter --net=/proc/$other/ns/net "$@"; }
outsideAsks() { [ "$(outside wget -q -T 5 -O - "http://$1:80/name" 2>/dev/null)" = web ]; }

uname -a
hostname arm
for module in veth sch_ingress cls_bpf nf_tables nf_conntrack; do modprobe $module; done
ip link set lo up
unshare -n sleep 100000 &
other=$!
sleep 1
ip link add eth0 type veth # the other end is veth0
ip link set veth0 netns $other
ip link set eth0 up
ip address add 10.77.0.11/24 dev eth0
outside ip link set veth0 up
outside ip address add 10.77.0.50/24 dev veth0
ip route add default via 10.77.0.50
for test in /tests/*.test; do
	[ -e "$test" ] || continue
	say "$(basename $test) $(cat "$test.run")"
	(cd /tmp && "$test" -test.timeout 20m -test.run "$(cat "$test.run")" -test.v) >/testlog 2>&1 || { cat /testlog; fail "$test"; }
	grep -E '^(---|ok|PASS|FAIL)' /testlog
done
[ "$(fairway)" != none ] || end ok

mkdir /www
printf web >/www/name
httpd -p 10.77.0.11:8000 -h /www

say "fairway up --mode ebpf"
fairway version
fairway up --mode ebpf --bind-address 10.77.0.11 --load-balancer-range 10.77.0.100-10.77.0.110 --dns=false --gateway=false >/log 2>&1 &
agent=$!
tries 600 well || fail "the agent isn't well"
say "the agent is well; its mode: $(wget -q -O - http://127.0.0.1:10249/proxyMode)"
[ "$(wget -q -O - http://127.0.0.1:10249/proxyMode)" = ebpf ] || fail "another mode"
fairway expose web --port 80 --to 10.77.0.11:8000 || fail "expose"
address=$(fairway kubectl get service web -o jsonpath='{.spec.clusterIP}')
tries 60 asks "$address" || fail "no answer at $address, by the programs at the socket"
say "answered at $address, by the programs at the socket"
external=$(fairway kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}')
[ -n "$external" ] || fail "no address of a load balancer"
tries 60 outsideAsks "$external" || fail "no answer at $external from outside, by the programs at the interface"
say "answered at $external from outside, by the programs at the interface"
fairway dump svc/web || fail "the kernel holds something else"
kill -9 $agent
outside ip neigh flush dev veth0
tries 60 outsideAsks "$external" || fail "no answer at $external from outside without an agent, by the program that answers ARP"
say "answered at $external from outside without an agent, by the program that answers ARP"
fairway cleanup || fail "cleanup"
end "ok"
