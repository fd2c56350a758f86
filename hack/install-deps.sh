#!/bin/sh
# Install the Debian packages that targets of the Makefile use, if any is missing:
#   hack/install-deps.sh TARGET...
# Fairway itself needs only the kernel; iptables and ipset are for the modes of
# those names. The eBPF programs are checked in compiled.
set -eu

packages="ca-certificates curl git make"
for target in "$@"; do
	case "$target" in
	demo) packages="$packages dnsutils iproute2 nftables procps" ;;
	test) packages="$packages dnsutils iproute2 nftables iptables ipset ipvsadm conntrack procps systemd
qemu-system-x86 busybox-static kmod cpio iputils-arping ndisc6 frr bird2 prometheus
haproxy nginx-light bind9 python3-minimal keepalived exabgp" ;;
	generate) packages="$packages clang llvm libbpf-dev linux-libc-dev" ;;
	pictures) packages="$packages python3-minimal termtosvg gnuplot-nox" ;;
	page) packages="$packages iproute2 procps chromium fonts-dejavu-core" ;;
	arm64) packages="$packages busybox-static cpio qemu-system-arm" ;;
	real-cluster) packages="$packages containerd runc containernetworking-plugins iproute2 nftables procps" ;;
	sig-network) packages="$packages dnsutils netcat-openbsd" ;;
	image) packages="$packages buildah runc debootstrap iproute2 procps" ;;
	*) echo "install-deps.sh: no target $target" >&2 && exit 2 ;;
	esac
done

missing=""
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# The tests start these themselves: as services they would take ports. Of
# prometheus only promtool is used.
for service in prometheus frr bird2:bird haproxy nginx bind9:named keepalived exabgp containerd; do
	case "$missing" in
	*"${service%%:*}"*) [ ! -d /run/systemd/system ] || systemctl mask --quiet "${service##*:}.service" ;;
	esac
done
# Where there is no systemd, packages ask this file whether to start theirs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086 # a list of words on purpose
apt-get install -y -qq --no-install-recommends $missing >/dev/null
