package drops

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package drops -no-global-types -type drop -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" drops bpf/drops.c
