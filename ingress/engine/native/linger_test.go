package native

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// readDeadlines counts those for reading.
type readDeadlines struct {
	http.ResponseWriter
	set int
}

func (d *readDeadlines) SetReadDeadline(time.Time) error {
	d.set++
	return nil
}

// TestExpectBody: a body has to come in time, but for streams, which may be silent for
// as long as they like.
func TestExpectBody(t *testing.T) {
	for kind, want := range map[string]int{"": 1, "text/plain": 1, "application/grpc-web": 0} {
		w, r := &readDeadlines{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
		r.Header.Set("Content-Type", kind)
		if expectBody(w, r); w.set != want {
			t.Errorf("%q: %d deadlines, want %d", kind, w.set, want)
		}
	}
}
