package responder

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package responder -no-global-types -type self -type address -type owned -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../steering/bpf -I/usr/include/x86_64-linux-gnu" responder bpf/responder.c
