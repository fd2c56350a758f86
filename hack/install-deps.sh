#!/bin/sh
# Install the Debian packages that the build, the lab and the tests use, if any
# is missing. Fairway itself needs only the kernel; iptables and ipset are for
# the modes of those names. With the argument "generate", also what generated
# code is made with: the eBPF programs are checked in compiled.
set -eu

packages="ca-certificates curl dnsutils git iproute2 make nftables iptables ipset ipvsadm conntrack procps systemd
qemu-system-x86 busybox-static kmod cpio iputils-arping ndisc6 frr bird2 prometheus
haproxy nginx-light bind9 python3-minimal keepalived exabgp"

[ "${1:-}" != generate ] || packages="$packages clang llvm libbpf-dev linux-libc-dev"
[ "${1:-}" != pictures ] || packages="$packages termtosvg gnuplot-nox"
[ "${1:-}" != page ] || packages="$packages chromium fonts-dejavu-core"
[ "${1:-}" != arm64 ] || packages="$packages qemu-system-arm"
[ "${1:-}" != image ] || packages="$packages buildah runc debootstrap"

missing=""
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# The tests start these themselves: as services they would take ports. Of
# prometheus only promtool is used.
for service in prometheus frr bird2:bird haproxy nginx bind9:named keepalived exabgp; do
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
