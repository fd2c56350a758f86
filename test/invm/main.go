// Command invm runs a program in the virtual machine of package test/vm,
// for what the kernel at hand lacks:
//
//	go run ./test/invm -modules ip_vs,dummy -read bin/fairway bin/fairway-bench --fairway bin/fairway --mode ipvs --services 100 --endpoints 3
//
// -kernel names the Debian release whose kernel it has. What the program writes
// is passed on. Its files are lost, but for those named by -files, which the
// machine has under the same paths and which come back; it has those named by -read, too. With -api, an
// API server of the program that it names runs here, where it isn't emulated, and
// the program there gets --kubeconfig as a further argument.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/test/vm"
)

// request is what the command line asks for.
type request struct {
	release          string
	modules, files   []string
	read             []string
	api              string
	program          string
	programArguments []string
}

func main() {
	var r request
	var modules, files, read string
	flag.StringVar(&r.release, "kernel", "", "Debian release, such as bullseye; this machine's without it")
	flag.StringVar(&modules, "modules", "", "kernel modules to load before, separated by commas")
	flag.StringVar(&files, "files", "", "files that the program may read and that come back, separated by commas")
	flag.StringVar(&read, "read", "", "files that the program may read, separated by commas")
	flag.StringVar(&r.api, "api", "", "a build of fairway, whose server runs here and whose kubeconfig the program there is given")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: invm [-kernel RELEASE] [-modules A,B] [-files A,B] [-read A,B] [-api FAIRWAY] PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	r.modules, r.files, r.read = splitList(modules), splitList(files), splitList(read)
	r.program, r.programArguments = flag.Arg(0), flag.Args()[1:]
	code, err := run(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "invm:", err)
		code = 1
	}
	os.Exit(code)
}

// splitList splits a flag's list at its commas.
func splitList(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func run(r request) (code int, err error) {
	program, err := filepath.Abs(r.program)
	if err != nil {
		return 0, err
	}
	config := vm.Config{Binary: program, Kernel: r.release, Network: r.api != ""}
	for _, name := range slices.Concat(r.files, r.read) {
		path, err := filepath.Abs(name)
		if err != nil {
			return 0, err
		}
		config.Files = append(config.Files, path)
	}
	writtenBack := config.Files[:len(r.files)] // what -files named
	if r.api != "" {
		server, err := startServer(r.api)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		config.Files = append(config.Files[:len(config.Files):len(config.Files)], server.kubeconfig)
		r.programArguments = append(r.programArguments, "--kubeconfig", server.kubeconfig)
	}
	m, err := vm.Start(config)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	fmt.Fprintf(os.Stderr, "in the virtual machine (%s)\n", m.Accel)
	if code, err = m.Run(vm.Command{Args: r.programArguments, Modules: r.modules, Output: os.Stdout}); err != nil {
		return code, err
	}
	for _, path := range writtenBack {
		content, err := m.Fetch(path)
		if err != nil {
			return code, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return code, err
		}
	}
	return code, nil
}
