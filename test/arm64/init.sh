#!/bin/busybox sh
# The first process of the emulated arm64 machine. It runs the tests that `try` put
# there and the binary. The last line says how it went.
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
fail() { end "failed: $*"; }

uname -a
for module in veth sch_ingress cls_bpf nf_tables nf_conntrack; do modprobe $module; done
ip link set lo up
for test in /tests/*.test; do
	[ -e "$test" ] || continue
	say "$(basename $test) $(cat "$test.run")"
	(cd /tmp && "$test" -test.timeout 20m -test.run "$(cat "$test.run")" -test.v) >/testlog 2>&1 || { cat /testlog; fail "$test"; }
	grep -E '^(---|ok|PASS|FAIL)' /testlog
done
say "the binary"
fairway version || fail "fairway version"

# serve MODE: a lab of two nodes with a Deployment, whose Service is asked at both of its addresses, from a node and from outside.
serve() {
	say "a lab in $1 mode"
	fairway lab up --nodes 2 --mode $1 || fail "lab up --mode $1"
	fairway lab kubectl apply -f /hello.yaml || fail "kubectl apply"
	fairway lab kubectl patch service hello-service -p '{"spec":{"ipFamilyPolicy":"PreferDualStack"}}' || fail "kubectl patch"
	fairway lab kubectl rollout status deployment/hello --timeout 300s || fail "the Deployment in $1 mode"
	addresses=$(fairway lab kubectl get service hello-service -o "jsonpath={.spec.clusterIPs[*]}")
	[ $(echo $addresses | wc -w) = 2 ] || fail "hello-service has the addresses '$addresses'"
	for address in $addresses; do
		for from in node1 client; do
			answers $from $address || fail "$address from $from in $1 mode"
		done
	done
	fairway lab down || fail "lab down"
}

# answers FROM ADDRESS: busybox's wget, which would be shorter, needs libraries that aren't there.
answers() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		printf 'GET / HTTP/1.0\r\n\r\n' | fairway lab exec $1 -- nc -w 5 $2 12345 | grep hello- && return
		sleep 1
	done
	return 1
}

serve ebpf
serve nftables
end ok
