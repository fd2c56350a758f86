package native

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestClientGoes: an endpoint learns that nobody waits for its answer any more,
// whether the rule has a timeout or not, and the next client is answered.
func TestClientGoes(t *testing.T) {
	for name, action := range map[string]*model.Action{"no timeout": {}, "timeout": {Timeout: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			asked, ended := make(chan struct{}, 1), make(chan error, 1)
			at := frontOf(t, action, func(c net.Conn, r *bufio.Reader) {
				for q := nextRequest(r); q != nil; q = nextRequest(r) {
					if q.URL.Path == "/never" {
						asked <- struct{}{}
						_, err := r.ReadByte()
						ended <- err
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			})
			for range 3 { // the first has its connection used again
				if status := get(t, "http://"+at.String()+"/"); status != http.StatusOK {
					t.Fatalf("answer %d", status)
				}
				c, err := net.Dial("tcp", at.String())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(c, "GET /never HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				<-asked
				_ = c.Close() // as a client that goes away
				select {
				case err := <-ended:
					if err == nil {
						t.Error("the endpoint was sent more than the request")
					}
				case <-time.After(30 * time.Second):
					t.Fatal("the endpoint still answers a client that has gone")
				}
			}
		})
	}
}

// TestOriginOfClient: whether scripts may read the answer is decided by the origin
// that the client named, though the endpoint doesn't hear of it.
func TestOriginOfClient(t *testing.T) {
	action := &model.Action{CORS: &model.CORS{Origins: []string{"https://a.example"}}, Request: model.HeaderEdit{Remove: []string{"Origin"}}}
	heard := make(chan string, 1)
	at := frontOf(t, action, func(c net.Conn, r *bufio.Reader) {
		q := nextRequest(r)
		heard <- q.Header.Get("Origin")
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Origin", "https://a.example")
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // only headers count
	if origin := <-heard; origin != "" || response.Header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("the endpoint heard of origin %q; answer %v", origin, response.Header)
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close() // all was read
	return response.StatusCode
}
