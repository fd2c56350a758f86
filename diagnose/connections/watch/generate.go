package watch

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package watch -no-global-types -type seen -type tuple -type conn -type kind -type kind_traits -type traits -type owner -type packets_seen -type hook -type step -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I../../../dataplane/ebpf/bpf" watch bpf/watch.c
