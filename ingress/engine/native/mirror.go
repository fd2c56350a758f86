package native

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	maxMirrored   = 1 << 20 // of a body; longer ones are not mirrored
	mirrorTimeout = 30 * time.Second
)

// mirror sends copies of a share of requests. What becomes of them changes
// nothing for the client.
func (x *exchange) mirror(r *http.Request, mirrors []model.Mirror) {
	var kept []byte
	if r.ContentLength != 0 && r.Body != nil {
		b, err := io.ReadAll(io.LimitReader(x.body.source, maxMirrored+1))
		x.body.kept, x.body.read = b, len(b) // for the request itself
		if err != nil || len(b) > maxMirrored {
			return
		}
		kept = b
	}
	table := x.engine.table.Load()
	for _, m := range mirrors {
		pool := table.Pools[m.Pool]
		if pool == nil || rand.IntN(m.Denominator) >= m.Numerator {
			continue
		}
		ep, ok := x.engine.pickers.pick(pool, x.client, "", nil)
		if !ok {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), mirrorTimeout)
		out := r.Clone(ctx)
		out.RequestURI = ""
		model.SetPath(out.URL, x.request.Path)
		out.URL.Scheme, out.URL.Host = "http", ep.String()
		if pool.TLS != nil {
			out.URL.Scheme = "https"
		}
		dropHopByHop(out.Header)
		dropForwarded(out.Header)
		out.Header.Set("X-Forwarded-For", x.client.String())
		x.action.Request.Apply(out.Header)
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(kept)), int64(len(kept))
		transport := x.engine.upstreams.of(pool, false, 0)
		go func() {
			defer cancel()
			response, err := transport.RoundTrip(out)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}()
	}
}

// dropHopByHop takes out what is about the client's connection (RFC 9110, 7.6.1).
func dropHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(h, name)
	}
}

// dropForwarded takes out what the client says of where it comes from.
func dropForwarded(h http.Header) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		delete(h, name)
	}
}
