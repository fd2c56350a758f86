package steering

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -no-global-types -type key -type ring -type mac -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" steering bpf/steering.c
