package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestAccessLog: a request is a line of JSON, whatever the client wrote.
func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	log := AccessLog(&out, AccessJSON, nil)
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

// TestAccessLogFields: a line has the fields that were asked for, and no others.
func TestAccessLogFields(t *testing.T) {
	var out bytes.Buffer
	AccessLog(&out, AccessJSON, []string{"user_agent", "query", "status"})(&model.Access{Status: 200, Query: "a=b", UserAgent: "curl/8", Path: "/x"})
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	want := map[string]any{"level": "INFO", "msg": "request", "status": 200.0, "query": "a=b", "user_agent": "curl/8"}
	if !maps.Equal(got, want) {
		t.Errorf("the line is %v, want %v", got, want)
	}
}

// TestAccessLogCombined: lines are as Apache writes them, and no client forges one.
func TestAccessLogCombined(t *testing.T) {
	var out bytes.Buffer
	log := AccessLog(&out, AccessCombined, nil)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))
	log(&model.Access{
		Time: at, Client: netip.MustParseAddr("2001:db8::1"), Method: "GET", Path: "/x\"\n", Query: "a=b\\", Protocol: "HTTP/1.1",
		Status: 404, Bytes: 12, Referer: "https://a.example/\" \"", UserAgent: "é\x00",
	})
	log(&model.Access{Time: at, Method: "GET", Path: "/", Protocol: "HTTP/2.0", Status: 204})
	log(&model.Access{Time: at, Unlogged: true})
	want := `2001:db8::1 - - [04/Mar/2026:05:06:07 +0100] "GET /x\"\x0a?a=b\\ HTTP/1.1" 404 12 "https://a.example/\" \"" "\xc3\xa9\x00"
- - - [04/Mar/2026:05:06:07 +0100] "GET / HTTP/2.0" 204 - "-" "-"
`
	if out.String() != want {
		t.Errorf("the log is\n%swant\n%s", out.String(), want)
	}
}
