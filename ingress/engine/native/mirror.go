package native

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
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
		policy.SetPath(out.URL, x.request.Path)
		out.URL.Scheme, out.URL.Host = "http", ep.String()
		if pool.TLS != nil {
			out.URL.Scheme = "https"
		}
		x.say(out.Header)
		policy.Edit(out.Header, &x.action.Request)
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
