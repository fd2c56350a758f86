#!/usr/bin/busybox sh
# The machine's first process: mounts, then takes commands from every virtio
# port, several at a time, one after another from each. A command is answered by
# its output and a line with its exit code. The lines that frame an answer are
# known to line.go.
/usr/bin/busybox --install -s /usr/bin 2>/dev/null
export PATH=/usr/sbin:/usr/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
# Not busybox's, which doesn't wait for a module that another is loading.
echo /usr/sbin/modprobe >/proc/sys/kernel/modprobe
ip link set lo up
modprobe virtio_pci
modprobe virtio_console
# network=on is on the kernel's command line: qemu's user-mode network, where
# 10.0.2.2 is the host's loopback. There is no route to anywhere else.
if [ "${network:-}" = on ]; then
	modprobe virtio_net
	until ip link set eth0 up 2>/dev/null; do sleep 0.05; done
	ip address add 10.0.2.15/24 dev eth0
fi

serve() {
	# The device may be there before the port is: ENXIO then.
	until command exec 3<>"$1"; do sleep 0.05; done
	echo "::ready::" >&3
	while read -r line <&3; do
		sh -c "$line" </dev/null >&3 2>&1
		printf '\n::exit %d::\n' $? >&3
	done
}

# A sign of life each second, at the port behind those for commands.
pulse="/dev/vport0p$((${lines:?} + 1))"
until [ -c "$pulse" ]; do sleep 0.05; done
while :; do
	echo
	sleep 1
done >"$pulse" 2>/dev/null &

# lines=N is on the kernel's command line, which puts it into the environment.
for n in $(seq "${lines:?}"); do
	until [ -c "/dev/vport0p$n" ]; do sleep 0.05; done
	serve "/dev/vport0p$n" &
done
wait
poweroff -f
