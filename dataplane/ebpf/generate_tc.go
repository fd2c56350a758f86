package ebpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package ebpf -no-global-types -type tuple -type conn -type link -type orphan -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" tc bpf/tc.c
