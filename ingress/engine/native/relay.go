package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// isShort reports whether a request has no body, may be sent twice, and goes to endpoints
// of plain HTTP/1.1.
func (x *exchange) isShort(r *http.Request) bool {
	return x.pool.Protocol == model.HTTP1 && x.pool.TLS == nil && x.pool.Proxy == model.ProxyNone && isRepeatable(r) && !x.upgrade && len(r.Header["Trailer"]) == 0
}

// withoutBody is the body of requests that have none.
var withoutBody = &body{source: http.NoBody}

// relay has an endpoint answer, and hands the answer to the client. It is the one way of
// all requests that a server of net/http's or quic-go's has read; those that simple reads
// go by ask, too. The request itself becomes what the endpoint gets: a server doesn't look
// at what is changed here once it has called the handler.
func (x *exchange) relay(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	x.writer = w
	out := r
	switch {
	case x.action.CORS != nil || x.backend.CORS != nil: // the answer depends on what the client asked with
		out = r.Clone(ctx)
	case ctx != r.Context():
		out = r.WithContext(ctx)
	}
	if x.body == withoutBody && x.isShort(r) && x.isBare(ctx, r) {
		if x.plain = plainOf(ctx); x.plain != nil {
			x.plain.handled.Store(true)
			defer x.plain.handled.Store(false)
		}
	}
	response, err := x.ask(out)
	if err != nil {
		x.failed(w, out, err)
		return
	}
	defer func() { _ = response.Body.Close() }() // what is left of it is lost
	if response.StatusCode == http.StatusSwitchingProtocols {
		x.tunnel(ctx, w, response)
		return
	}
	x.respond(w, response)
}

var errUnasked = errors.New("the endpoint changes the protocol though nobody asked")

// ask has an endpoint answer a request, which becomes what the endpoint gets.
func (x *exchange) ask(out *http.Request) (*http.Response, error) {
	if x.body == withoutBody {
		out.Body = nil
	}
	out.Close, out.RequestURI = false, ""
	x.edit(out)
	if x.upgrade {
		out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	response, err := x.RoundTrip(out)
	x.informer.end()
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols && !(x.upgrade && strings.EqualFold(response.Header.Get("Upgrade"), "websocket")) {
		_ = response.Body.Close() // it isn't handed on
		return nil, errUnasked
	}
	policy.DropHopByHop(response.Header)
	if err := x.modify(response); err != nil {
		_ = response.Body.Close() // it isn't handed on
		return nil, fmt.Errorf("change the answer: %w", err)
	}
	return response, nil
}

// isBare reports whether nobody but cutGone has to know when the client goes away:
// nothing listens to the context, and the connection has no other requests.
func (x *exchange) isBare(ctx context.Context, r *http.Request) bool {
	return r.ProtoMajor == 1 && ctx == r.Context() && x.action.BackendTimeout == 0 && x.action.ReadTimeout == 0 && x.action.Errors == nil
}

// respond hands an endpoint's answer to the client.
func (x *exchange) respond(w http.ResponseWriter, response *http.Response) {
	h := w.Header()
	for name, values := range response.Header {
		if before := h[name]; len(before) > 0 {
			values = append(before, values...)
		}
		h[name] = values
	}
	announced := len(response.Trailer)
	for name := range response.Trailer {
		h.Add("Trailer", name)
	}
	w.WriteHeader(response.StatusCode)
	if err := x.copyBody(w, response); err != nil {
		panic(http.ErrAbortHandler) // so that the client sees that the answer isn't whole
	}
	if len(response.Trailer) == 0 {
		return
	}
	_ = http.NewResponseController(w).Flush() // has an answer without a body be chunked
	for name, values := range response.Trailer {
		if len(response.Trailer) != announced {
			name = http.TrailerPrefix + name
		}
		h[name] = append(h[name], values...)
	}
}

// copyBody copies an answer's body. One whose length nobody knows, or of events,
// goes out part by part as it comes.
func (x *exchange) copyBody(w http.ResponseWriter, response *http.Response) error {
	if response.ContentLength == 0 || response.Body == http.NoBody {
		return nil
	}
	atOnce := response.ContentLength == -1 || strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	if atOnce {
		_ = http.NewResponseController(w).Flush() // the client may wait for the headers
	}
	buffer := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buffer)
	slowly := newPacer(x.action.Rate)
	taken := progress{stream: x.multiplexed, control: http.NewResponseController(w)}
	for {
		n, err := response.Body.Read((*buffer)[:slowly.most(len(*buffer))])
		if n > 0 {
			if err := slowly.wait(response.Request.Context(), n); err != nil {
				return err
			}
			taken.next(n)
			if _, err := w.Write((*buffer)[:n]); err != nil {
				return err
			}
			if atOnce {
				_ = http.NewResponseController(w).Flush() // an error shows with the next write
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
