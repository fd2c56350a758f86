package packet

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package packet -no-global-types -type tuple -type conn -type kind -type hook -type step -type timeout -type handover_phase -type drop_reason -type stray -type uplink_flags -type driver_count -type collected -type kind_traits -type traits -type owner -type packets_seen -type link -type orphan -type tracked -type uplink -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I../bpf" tc bpf/tc.c
