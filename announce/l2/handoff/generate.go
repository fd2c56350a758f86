package handoff

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package handoff -no-global-types -type address -type former -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../lead/bpf -I/usr/include/x86_64-linux-gnu" handoff bpf/handoff.c
