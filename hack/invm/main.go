// Command invm runs a program in the virtual machine of package internal/vm,
// for what the kernel at hand lacks:
//
//	go run ./hack/invm -modules ip_vs,dummy ./fairway bench --mode ipvs --services 1000 --endpoints 5
//
// -kernel names the Debian release whose kernel it has. What the program writes
// is passed on; its files are lost.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/internal/vm"
)

func main() {
	release := flag.String("kernel", "", "Debian release, such as bullseye; this machine's without it")
	modules := flag.String("modules", "", "kernel modules to load before, separated by commas")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: invm [-kernel RELEASE] [-modules A,B] PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	code, err := run(*release, *modules, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "invm:", err)
		code = 1
	}
	os.Exit(code)
}

func run(release, modules string, command []string) (code int, err error) {
	program, err := filepath.Abs(command[0])
	if err != nil {
		return 0, err
	}
	m, err := vm.Start(vm.Config{Binary: program, Kernel: release})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	fmt.Fprintf(os.Stderr, "in the virtual machine (%s)\n", m.Accel)
	var load []string
	if modules != "" {
		load = strings.Split(modules, ",")
	}
	return m.Run(vm.Command{Args: command[1:], Modules: load, Output: os.Stdout})
}
