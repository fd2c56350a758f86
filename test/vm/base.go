package vm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed init.sh
var initScript []byte

// programs are those that tests of data planes call; the machine has them if
// the host does. Patterns stand for all variants.
var programs = []string{
	"modprobe", "kmod", "ip", "tc", "nft", "ip*tables*", "xtables-*", "ipset", "ipvsadm", "conntrack", "ss", "ps", "readlink", "sysctl",
}

// plugins are libraries that programs load by themselves, and what they read.
var plugins = []string{"/usr/lib/*/xtables/*.so", "/etc/protocols", "/etc/services", "/etc/iproute2/rt_tables", "/etc/iproute2/rt_protos"}

// base makes the part of the initramfs that doesn't depend on the test, or
// finds it in the cache: busybox, the kernel's network modules, the programs.
func base(cache string, k kernelFiles) (string, error) {
	a, err := baseArchive(k)
	if err != nil {
		return "", err
	}
	sum, err := a.sum()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "base-"+sum+".cpio")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, writeFile(file, a.writeTo)
}

// writeFile makes a file that is either whole or not there.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(write(out), out.Flush(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}

func baseArchive(k kernelFiles) (*archive, error) {
	a := newArchive()
	// As on Debian: everything is below /usr.
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		a.put("/usr/"+dir, entry{mode: os.ModeDir | 0o755})
		a.put("/"+dir, entry{mode: os.ModeSymlink | 0o777, link: "usr/" + dir})
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/root", "/var/lib", "/etc"} {
		a.put(dir, entry{mode: os.ModeDir | 0o755})
	}
	a.put("/tmp", entry{mode: os.ModeDir | os.ModeSticky | 0o777})
	a.put("/init", entry{mode: 0o755, inline: initScript})
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	a.put("/usr/bin/busybox", entry{mode: 0o755, host: busybox})
	if err := a.addTree(k.modules, "/usr/lib/modules/"+k.release, wantedModule); err != nil {
		return nil, fmt.Errorf("add the kernel's modules: %w", err)
	}
	return a, a.addPrograms()
}

// wantedModule chooses modules: networking and what it needs, and the lines to
// the host.
func wantedModule(rel string) bool {
	if !strings.HasSuffix(rel, ".ko") {
		return true // modules.dep and so on
	}
	for _, dir := range []string{"kernel/net/", "kernel/lib/", "kernel/crypto/", "kernel/arch/x86/crypto/", "kernel/drivers/virtio/"} {
		if strings.HasPrefix(rel, dir) {
			return true
		}
	}
	return slices.Contains([]string{"bonding.ko", "team.ko", "team_mode_roundrobin.ko", "macvlan.ko", "ipvlan.ko", "wireguard.ko", "geneve.ko", "vxlan.ko", "vrf.ko", "dummy.ko", "veth.ko", "tun.ko", "ifb.ko", "virtio_console.ko", "virtio_net.ko", "net_failover.ko"}, filepath.Base(rel))
}

func (a *archive) addPrograms() error {
	for _, name := range programs {
		for _, dir := range []string{"/usr/sbin", "/usr/bin"} {
			found, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			for _, program := range found {
				if err := a.addProgram(program); err != nil {
					return err
				}
			}
		}
	}
	for _, pattern := range plugins {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range found {
			if err := a.addProgram(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// addProgram adds a program or library and the libraries that it is linked to.
func (a *archive) addProgram(host string) error {
	if err := a.addFile(host); err != nil {
		return err
	}
	for _, library := range libraries(host) {
		if err := a.addFile(library); err != nil {
			return err
		}
	}
	return nil
}

// libraries are those that ldd names; none for scripts and static programs,
// for which it fails.
func libraries(program string) []string {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	var found []string
	for _, word := range bytes.Fields(out) {
		if bytes.HasPrefix(word, []byte("/")) {
			found = append(found, string(word))
		}
	}
	return found
}

// sum is a hash of the archive's content.
func (a *archive) sum() (string, error) {
	h := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[p]
		fmt.Fprintf(h, "%s %o %s %q\n", p, e.mode, e.link, e.inline)
		if e.host == "" {
			continue
		}
		content, err := os.ReadFile(e.host)
		if err != nil {
			return "", err
		}
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
