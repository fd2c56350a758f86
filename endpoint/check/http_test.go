package check

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestIsWhole(t *testing.T) {
	for rest, want := range map[string]bool{
		"Content-Length: 0\r\n\r\n":                        true,
		"Server: x\r\ncontent-length:  2 \r\n\r\nok":       true,
		"Content-Length: 3\r\n\r\nok":                      false,
		"Content-Length: 2\r\n\r\nok!":                     false,
		"Content-Length: two\r\n\r\nok":                    false,
		"Content-Length: 2\r\n":                            false,
		"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0":   false,
		"X-Content-Length: 2\r\n\r\nok":                    false,
		"":                                                 false,
		"\r\n\r\n":                                         false,
		"Content-Length: 99999999999999999999999\r\n\r\nx": false,
	} {
		if got := isWhole([]byte(rest)); got != want {
			t.Errorf("%q: %v, want %v", rest, got, want)
		}
	}
}

// TestNothingIsCutOff: a server can always send its answer to the end, so that
// it has no error to log.
func TestNothingIsCutOff(t *testing.T) {
	for _, address := range loopbacks {
		var failed atomic.Int32
		done := make(chan struct{}, 100)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 4 { // chunks, some of which come late
				if _, err := fmt.Fprint(w, strings.Repeat("x", 5000)); err != nil {
					failed.Add(1)
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					failed.Add(1)
				}
			}
			done <- struct{}{}
		})}
		l := listen(t, address)
		go func() { _ = server.Serve(l) }() // until it is closed
		defer func() { _ = server.Close() }()
		for range 20 {
			expect(t, ask(t, l.Addr().String(), "http:/", "interval=1m", "timeout=1m"), Passed, "")
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("the server doesn't end")
			}
		}
		if n := failed.Load(); n > 0 {
			t.Errorf("%s: %d writes failed", address, n)
		}
	}
}
