package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// roleVariable makes the test binary play another program: kubectl, which
// ends its process as it likes, or a server to be killed.
const roleVariable = "FAIRWAY_TEST_ROLE"

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard) // else it makes files in /tmp
	switch os.Getenv(roleVariable) {
	case "kubectl":
		playKubectl()
	case "server":
		os.Exit(playServer(os.Args[1]))
	default:
		code := m.Run()
		if err := commonServer.close(); err != nil {
			fmt.Fprintln(os.Stderr, "the server that tests share:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
}

func playKubectl() {
	command := kubectlcmd.NewKubectlCommand(kubectlcmd.KubectlOptions{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
	})
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
}

// playServer serves with the given data directory, or configuration, until it
// is killed.
func playServer(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := DefaultConfig()
	config.DataDir, config.Port = dir, 0
	if strings.HasPrefix(dir, "{") { // a whole configuration
		if err := json.Unmarshal([]byte(dir), &config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	s, err := Start(ctx, config)
	if err == nil {
		fmt.Println("ready")
		err = s.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// testConfig serves on a free port of the loopback, with its data in a
// directory of its own.
func testConfig(t testing.TB) Config {
	t.Helper()
	c := DefaultConfig()
	c.DataDir = t.TempDir()
	c.Port = 0
	return c
}

// start starts a server that ends with the test.
func start(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
	})
	return s
}

func client(t testing.TB, s *Server) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// within gives an operation time enough for a loaded machine.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// kubectl runs kubectl as administrator and returns what it prints; it must
// succeed.
func kubectl(t *testing.T, s *Server, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, s, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryKubectl(t *testing.T, s *Server, stdin string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(within(t), os.Args[0], args...)
	command.Env = append(os.Environ(), roleVariable+"=kubectl", "KUBECONFIG="+s.AdminKubeconfig(), "HOME="+t.TempDir())
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// serverProcess starts a server in a process of its own.
func serverProcess(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], dir)
	command.Env = append(os.Environ(), roleVariable+"=server")
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("server says %q, %v: %s", line, err, errors.String())
	}
	return command
}
