package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"golang.org/x/sys/unix"
)

// podVariable says that this process is one of a pod: /run is its own.
const podVariable = "FAIRWAY_TEST_POD"

// account is where a pod finds its ServiceAccount's credentials.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestServiceAccountToken: with the credentials of its pod, a client goes on after
// its token has expired: as soon as the kubelet has brought the next one.
func TestServiceAccountToken(t *testing.T) {
	if os.Getenv(podVariable) == "" {
		command := exec.Command(os.Args[0], "-test.run=^TestServiceAccountToken$", "-test.v")
		command.Env = append(os.Environ(), podVariable+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		said, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "--- PASS: TestServiceAccountToken") {
			t.Errorf("in a pod (which takes root to play): %v\n%s", err, said)
		}
		return
	}
	a := startAPI(t)
	a.do("token first")
	a.service("a")
	a.bePod(t)
	config, err := Config("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := Client(config)
	if err != nil {
		t.Fatal(err)
	}
	got := &collector{names: map[string]bool{}}
	watchUntilEnd(t, Source{Client: client.CoreV1().RESTClient(), Resource: "services"}, got.sink())
	got.wait(t, 1, "a")
	a.watching(1)

	a.do("token second") // the first one has expired
	a.do("cut")
	a.service("b")
	for late := range wait.Tries(30 * time.Second) {
		if a.seen().Unauthorized != 0 {
			break
		}
		if late {
			t.Fatal("the old token is not refused")
		}
	}
	got.wait(t, 1, "a")
	writeToken(t, "second")
	got.wait(t, 1, "a", "b")

	writeToken(t, "third") // in time, so that nothing is refused
	refused := a.seen().Unauthorized
	a.do("token third")
	a.do("cut")
	a.service("c")
	got.wait(t, 1, "a", "b", "c")
	t.Logf("%d requests with an old token, %d of them after it was replaced in time", a.seen().Unauthorized, a.seen().Unauthorized-refused)
}

// bePod gives this process what a pod has.
func (a *api) bePod(t *testing.T) {
	t.Helper()
	// /var/run is one of /run's names, or a directory of its own.
	run, err := filepath.EvalSymlinks("/var/run")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", run, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(account, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(account, "ca.crt"), a.process.CA, 0o644); err != nil {
		t.Fatal(err)
	}
	writeToken(t, "first")
	host, port, _ := strings.Cut(strings.TrimPrefix(a.process.URL, "https://"), ":")
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
}

// writeToken replaces the token as a kubelet does.
func writeToken(t *testing.T, token string) {
	t.Helper()
	file := filepath.Join(account, "token")
	if err := os.WriteFile(file+".new", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
