//go:build image

package deploy_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/internal/cgroup"
)

// imageEnv is a directory with the file system of the image, as deploy/try-image
// leaves it.
const imageEnv = "FAIRWAY_IMAGE"

// TestImage has runc run the containers of the DaemonSet's pod from the image
// that deploy/Dockerfile makes, with all restrictions that the manifest asks of a
// container runtime and those that one has by itself.
func TestImage(t *testing.T) {
	image := os.Getenv(imageEnv)
	if image == "" {
		t.Fatalf("%s names no directory with the file system of an image: `make check NAME=image` makes one", imageEnv)
	}
	for _, test := range []struct {
		mode, folder string
		listing      listing
	}{
		{"nftables", "kubeadm", listing{[]string{"nft", "list", "ruleset"}, "table inet fairway"}},
		{"iptables", "kubeadm", listing{[]string{"iptables-save", "-t", "nat"}, "KUBE-SERVICES"}},
		{"ebpf", "testdata/ebpf", listing{[]string{"nft", "list", "ruleset"}, ""}},
	} {
		t.Run(test.mode, func(t *testing.T) {
			pod := daemonPod(t, test.folder)
			h := newHost(t)
			h.serve(recording)
			environ := h.configure(test.mode, true)
			if test.mode == "ebpf" {
				h.mountBPF()
				nameCgroup(t, pod)
			}
			h.runc(image, pod, &pod.InitContainers[0], environ...).wait()
			agent := h.runc(image, pod, &pod.Containers[0], environ...)
			address := netip.AddrPortFrom(netip.MustParseAddr(shopAddr), 80).String()
			h.answers(agent, address, "web")
			h.lists(test.listing, true)
			h.healthy(agent)
			agent.kill()
			if got, err := h.ask(address); got != "web" {
				t.Errorf("after a kill: %q, %v", got, err)
			}
			h.role()
		})
	}
}

// nameCgroup has the agent see the sockets of this process. By itself it takes
// the whole machine's, if it is in the machine's network namespace; here, as in
// kind, it isn't, and a container's own cgroup holds nobody else.
func nameCgroup(t *testing.T, pod *corev1.PodSpec) {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	own, err := cgroup.Own()
	if err != nil {
		t.Fatal(err)
	}
	pod.Containers[0].Args = append(pod.Containers[0].Args, "--cgroup="+filepath.Join(root, own))
}

// runc starts a container of the pod from an image.
func (h *host) runc(image string, pod *corev1.PodSpec, c *corev1.Container, environ ...string) *process {
	h.t.Helper()
	bundle, id := h.t.TempDir(), fmt.Sprintf("fairway-%d-%d", os.Getpid(), time.Now().UnixNano())
	if err := h.bundle(bundle, image, pod, c, environ); err != nil {
		h.t.Fatal(err)
	}
	runc := func(args ...string) *exec.Cmd {
		return exec.Command("runc", append([]string{"--root", filepath.Join(bundle, "runc")}, args...)...)
	}
	p := &process{t: h.t, command: runc("run", "--bundle", bundle, id), log: &logBuffer{}, ended: make(chan struct{})}
	p.end = func() error { return runc("kill", id, "KILL").Run() } // runc itself then ends
	h.start(p)
	return p
}

// bundle writes what runc is told of a container: its own defaults, changed as a
// kubelet would have them changed for the manifest.
func (h *host) bundle(dir, image string, pod *corev1.PodSpec, c *corev1.Container, environ []string) error {
	command := exec.Command("runc", "spec")
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("runc spec: %w: %s", err, out)
	}
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec struct {
		Version  string           `json:"ociVersion"`
		Process  map[string]any   `json:"process"`
		Root     map[string]any   `json:"root"`
		Hostname string           `json:"hostname"`
		Mounts   []map[string]any `json:"mounts"`
		Linux    map[string]any   `json:"linux"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	// The host's network is that of the process.
	spec.Linux["namespaces"] = []map[string]string{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}
	spec.Root = map[string]any{"path": image, "readonly": *c.SecurityContext.ReadOnlyRootFilesystem}
	spec.Process["terminal"] = false
	spec.Process["env"] = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_NAME=" + nodeName}, environ...)
	args := []string{"/usr/local/bin/fairway"} // the image's ENTRYPOINT: see TestDockerfile
	for _, a := range c.Args {
		args = append(args, strings.ReplaceAll(a, "$(NODE_NAME)", nodeName))
	}
	spec.Process["args"] = args
	capabilities, err := h.capabilitiesOf(c)
	if err != nil {
		return err
	}
	spec.Process["capabilities"] = map[string][]string{"bounding": capabilities, "effective": capabilities, "permitted": capabilities}
	spec.Process["noNewPrivileges"] = !privileged(c)
	if privileged(c) {
		spec.Linux["maskedPaths"], spec.Linux["readonlyPaths"] = []string{}, []string{}
		spec.Linux["resources"] = map[string]any{"devices": []map[string]any{{"allow": true, "access": "rwm"}}}
		for _, m := range spec.Mounts {
			if options, ok := m["options"].([]any); ok {
				m["options"] = slices.DeleteFunc(options, func(o any) bool { return o == "ro" })
			}
		}
	}
	mounts, err := h.bind(dir, pod, c)
	if err != nil {
		return err
	}
	spec.Mounts = append(spec.Mounts, mounts...)
	if text, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// capabilitiesOf are those that a container has: if it is privileged, all that
// its runtime has itself. More than that nobody can give it.
func (h *host) capabilitiesOf(c *corev1.Container) (names []string, err error) {
	var header unix.CapUserHeader
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	var own [2]unix.CapUserData
	if err := unix.Capget(&header, &own[0]); err != nil {
		return nil, fmt.Errorf("read own capabilities: %w", err)
	}
	for i, name := range everyCapability {
		switch asked := privileged(c) || slices.Contains(c.SecurityContext.Capabilities.Add, corev1.Capability(name)); {
		case asked && own[i/32].Permitted&(1<<(i%32)) == 0:
			h.t.Logf("%s goes without CAP_%s, which this machine doesn't give", c.Name, name)
		case asked:
			names = append(names, "CAP_"+name)
		}
	}
	return names, nil
}

// everyCapability by name, in the order of linux/capability.h.
var everyCapability = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
	SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
	WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// bind has runc mount the pod's volumes and the account's token.
func (h *host) bind(dir string, pod *corev1.PodSpec, c *corev1.Container) ([]map[string]any, error) {
	account := filepath.Join(dir, "account")
	if err := os.Mkdir(account, 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"token": apiToken, "ca.crt": string(h.ca), "namespace": "kube-system"} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	var binds []map[string]any
	for _, m := range append(h.mounts(pod, c), mount{account, "/var/run/secrets/kubernetes.io/serviceaccount", true}) {
		access := map[bool]string{true: "ro", false: "rw"}[m.readOnly]
		binds = append(binds, map[string]any{"type": "bind", "source": m.from, "destination": m.at, "options": []string{"rbind", "rprivate", access}})
	}
	return binds, nil
}
