package gateway

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestAccessLog: a request is a line of JSON, whatever the client wrote.
func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	log := AccessLog(slog.New(slog.NewJSONHandler(&out, nil)))
	want := model.Access{
		Took: 1500 * time.Millisecond, Client: netip.MustParseAddr("2001:db8::1"), Method: "GET", Host: "a\"b", Path: "/x\n{\"y\":\xff}\\", Protocol: "HTTP/2.0",
		Status: 200, Bytes: 12, Socket: "ns/gw:80", Route: "HTTPRoute ns/web", Rule: "0", Endpoint: "[2001:db8::2]:80", Reason: "none",
	}
	log(&want)
	log(&want)
	unlogged := want
	unlogged.Unlogged = true
	log(&unlogged)
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("two requests are %d lines: %s", len(lines), out.String())
	}
	for _, line := range lines {
		var got struct {
			Msg, Client, Method, Host, Path, Protocol, Socket, Route, Rule, Endpoint, Reason string

			Time    time.Time
			Status  int
			Bytes   int64
			Seconds float64
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got.Msg != "request" || got.Client != "2001:db8::1" || got.Host != want.Host || got.Path != "/x\n{\"y\":\ufffd}\\" || got.Status != 200 ||
			got.Bytes != 12 || got.Seconds != 1.5 || got.Socket != want.Socket || got.Route != want.Route || got.Rule != want.Rule ||
			got.Endpoint != want.Endpoint || got.Reason != want.Reason || got.Method != "GET" || got.Protocol != want.Protocol || got.Time.IsZero() {
			t.Errorf("%s is read as %+v", line, got)
		}
	}
}
