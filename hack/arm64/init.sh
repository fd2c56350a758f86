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
end ok
