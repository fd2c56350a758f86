package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/cmd"
	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/demo"
)

// beFairway in the environment makes this test binary the fairway binary, which
// a lab starts in its other roles.
const beFairway = "FAIRWAY_TEST_BE_FAIRWAY"

func TestMain(m *testing.M) {
	cgroupsock.Main() // returns unless this process makes sockets
	if os.Getenv(beFairway) != "" {
		os.Exit(cmd.Main())
	}
	if err := os.Setenv(beFairway, "yes"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDemo is the whole way from the API to packets.
func TestDemo(t *testing.T) {
	c := lab.DefaultConfig()
	c.Name, c.Nodes = fmt.Sprintf("demo-%d", os.Getpid()), 2
	var out bytes.Buffer
	if err := demo.Run(t.Context(), &out, c); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"service/hello-service2: NodePort", "none failed", "refused, as it should be", "All answers were right."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, out.String())
		}
	}
}

// TestDemoNotices: where nothing programs the kernel, the demo fails.
func TestDemoNotices(t *testing.T) {
	c := lab.DefaultConfig()
	c.Name, c.Nodes, c.Mode = fmt.Sprintf("demo-none-%d", os.Getpid()), 1, lab.NoMode
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // it would wait for longer
	defer cancel()
	if err := demo.Run(ctx, &out, c); err == nil {
		t.Errorf("without agents the demo is content:\n%s", out.String())
	}
	if _, err := lab.Load(c.Name); err == nil {
		t.Error("a lab is left")
	}
}
