package kubeproxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/agent"
)

// following is a Source that follows a file.
func following(t *testing.T, file string) (agent.Config, <-chan agent.Update) {
	t.Helper()
	s := &Source{Flags: &Flags{File: file, Master: "http://127.0.0.1:1"}, Verbosity: new(slog.LevelVar)}
	config, err := s.Agent(t.Context(), base())
	if err != nil {
		t.Fatal(err)
	}
	return config, config.Updates
}

// write writes a file in place, and leaves it no moment in which it is empty: on a
// busy machine that may last for longer than a file is given to settle.
func write(t *testing.T, file, content string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Truncate(int64(len(content))), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, updates <-chan agent.Update) agent.Update {
	t.Helper()
	select {
	case u := <-updates:
		return u
	case <-time.After(30 * time.Second):
		t.Fatal("no update in 30 s")
		panic("unreachable")
	}
}

func TestWatchSeesFilesWrittenAndReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, head+"mode: iptables\n")
	config, updates := following(t, file)
	if config.Mode != "iptables" {
		t.Fatalf("mode %s", config.Mode)
	}
	write(t, file, head+"mode: nftables\n")
	if u := update(t, updates); u.Err != nil || u.Config.Mode != "nftables" || u.Config.API != config.API {
		t.Errorf("after writing: %+v", u)
	}
	write(t, file+".new", head+"mode: ipvs\n")
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if u := update(t, updates); u.Err != nil || u.Config.Mode != "ipvs" {
		t.Errorf("after replacing: %+v", u)
	}
	write(t, file, head+"mode: none\n")
	if u := update(t, updates); u.Err == nil {
		t.Errorf("a bad file: %+v", u)
	}
	write(t, file, head+"mode: ipvs\nclientConnection: {qps: 9}\n")
	if u := update(t, updates); u.Err != nil || u.Config.API == config.API {
		t.Errorf("after another connection: %+v", u)
	}
}

// TestFormatOfTheLog: what a running process can't change is told by name, if it
// is to change.
func TestFormatOfTheLog(t *testing.T) {
	var said bytes.Buffer
	b := base()
	b.Log = slog.New(slog.NewTextHandler(&said, nil))
	s := &Source{Flags: &Flags{Master: "http://127.0.0.1:1"}, Verbosity: new(slog.LevelVar)}
	for _, step := range []struct{ lines, want string }{
		{"", ""}, {"mode: ipvs\n", ""}, {"logging: {format: json}\n", "logging.format: takes effect with the next start"}, {"mode: ipvs\n", ""},
	} {
		said.Reset()
		if _, err := s.parse([]byte(head+step.lines), b); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%q: said %q, want %q", step.lines, got, step.want)
		}
	}
}

// TestWatchSeesConfigMaps swaps directories as a kubelet does
// (kubernetes/pkg/volume/util/atomic_writer.go).
func TestWatchSeesConfigMaps(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, content string) {
		data := filepath.Join(dir, "..data_"+version)
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(data, "config.conf"), content)
		if err := os.Symlink(filepath.Base(data), filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("1", head+"mode: iptables\n")
	file := filepath.Join(dir, "config.conf")
	if err := os.Symlink("..data/config.conf", file); err != nil {
		t.Fatal(err)
	}
	_, updates := following(t, file)
	for _, mode := range []string{"nftables", "ipvs", "iptables"} {
		publish(mode, head+"mode: "+mode+"\n")
		if u := update(t, updates); u.Err != nil || u.Config.Mode != mode {
			t.Errorf("want %s, got %+v", mode, u)
		}
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, filepath.Join(t.TempDir(), "none"), nil, slog.New(slog.DiscardHandler), func([]byte) {})
	}()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("still watching")
	}
}
