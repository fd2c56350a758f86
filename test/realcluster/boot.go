package realcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootEnv has the test's program be a node's first process, or the one that starts
// the node's services.
const (
	bootEnv     = "FAIRWAY_REALCLUSTER_BOOT"
	servicesEnv = "FAIRWAY_REALCLUSTER_SERVICES"
)

// boot is what a node's first process is told.
type boot struct {
	Node        string
	Disk        string // a directory that outlives reboots
	Programs    string // Kubernetes' own
	Groups      []string
	Hierarchies []hierarchy
}

// Boot does a node's part if the program was started for that, and doesn't return then.
// A program that makes clusters calls it first.
func Boot() {
	log.SetFlags(log.Ltime)
	switch {
	case os.Getenv(bootEnv) != "":
		log.Fatal(first(os.Getenv(bootEnv)))
	case os.Getenv(servicesEnv) != "":
		log.Fatal(services())
	}
}

// first is the node's first process: it makes the node's view of the machine, starts
// the services, and buries who dies.
func first(text string) error {
	var b boot
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return err
	}
	runtime.LockOSThread() // whose children have its cgroup namespace
	if err := b.prepare(); err != nil {
		return fmt.Errorf("boot %s: %w", b.Node, err)
	}
	child := exec.Command("/proc/self/exe")
	child.Env = []string{servicesEnv + "=yes", "HOME=/root",
		"PATH=" + b.Programs + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		case pid == child.Process.Pid:
			return fmt.Errorf("the services have ended: %v", status)
		}
	}
}

func (b *boot) prepare() error {
	for _, dir := range b.Groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("enter a cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(b.Node)); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	return errors.Join(b.mountDisk(), b.mountKernel())
}

// mountDisk lays the node's own files over the machine's.
func (b *boot) mountDisk() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	for _, dir := range []string{"etc", "usr", "var", "opt"} {
		upper, work := filepath.Join(b.Disk, dir), filepath.Join(b.Disk, "work", dir)
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		options := fmt.Sprintf("lowerdir=/%s,upperdir=%s,workdir=%s", dir, upper, work)
		if err := unix.Mount("overlay", "/"+dir, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount /%s: %w", dir, err)
		}
	}
	// What containerd stacks images on can't be an overlay itself.
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/log"} {
		from := filepath.Join(b.Disk, "plain", dir)
		if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount(from, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// mountKernel mounts what a machine's kernel shows.
func (b *boot) mountKernel() error {
	mount := func(kind, at, options string) error {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, at, kind, 0, options); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
		return nil
	}
	errs := []error{mount("tmpfs", "/run", "mode=755"), mount("proc", "/proc", ""), mount("sysfs", "/sys", ""), mount("bpf", "/sys/fs/bpf", "mode=700")}
	mounted := "/sys/fs/cgroup"
	if len(b.Hierarchies) > 1 {
		errs = append(errs, mount("tmpfs", mounted, "mode=755"))
	}
	for _, h := range b.Hierarchies {
		errs = append(errs, mount(h.Type, h.At, h.Options))
	}
	errs = append(errs, os.MkdirAll("/run/settings", 0o755))
	// The kubelet sets these, which are the whole machine's.
	for name, value := range map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"} {
		file := filepath.Join("/run/settings", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			errs = append(errs, fmt.Errorf("cover %s: %w", name, err))
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		errs = append(errs, fmt.Errorf("share mounts with containers: %w", err))
	}
	return errors.Join(errs...)
}

// services are containerd and the kubelet, each started again when it ends.
func services() error {
	go keep("containerd", func() *exec.Cmd { return exec.Command("containerd", "--config", "/etc/containerd/config.toml") })
	keep("kubelet", func() *exec.Cmd {
		flags, err := os.ReadFile("/var/lib/kubelet/kubeadm-flags.env")
		if err != nil {
			return nil // kubeadm hasn't been here
		}
		_, args, _ := strings.Cut(strings.TrimSpace(string(flags)), "=")
		return exec.Command("kubelet", append([]string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
			"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/var/lib/kubelet/config.yaml", "--v=1"}, strings.Fields(strings.Trim(args, `"`))...)...)
	})
	return nil
}

// keep starts a program again and again; its log is in /var/log.
func keep(name string, command func() *exec.Cmd) {
	for ; ; time.Sleep(500 * time.Millisecond) {
		cmd := command()
		if cmd == nil {
			continue
		}
		out, err := os.OpenFile("/var/log/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err = cmd.Run()
		if _, err := io.WriteString(out, fmt.Sprintf("%s has ended: %v\n", name, err)); err != nil {
			log.Print(err)
		}
		if err := out.Close(); err != nil {
			log.Print(err)
		}
	}
}
