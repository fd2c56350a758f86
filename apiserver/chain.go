package apiserver

import (
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// handlerChain is the library's, with room on the stack where goroutines begin:
// the library serves a request by several, one for net/http, one for its
// timeout, and each would grow its stack four or five times on the way down,
// copying it and adjusting every frame: a tenth of a write's processor time.
func handlerChain(api http.Handler, c *genericapiserver.Config) http.Handler {
	return withRoom(genericapiserver.DefaultBuildHandlerChain(withRoom(api, makeRoom), c), makeSomeRoom)
}

// withRoom makes room for writes. Reads need less, and watches, which are
// reads, would keep it for as long as they last.
func withRoom(next http.Handler, room func(int) byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet {
			room(0)
		}
		next.ServeHTTP(w, req)
	})
}

// makeRoom grows the goroutine's stack at once to what a request's filters,
// decoding and encoding take; a frame of that size does it. Stacks don't shrink
// before the next garbage collection.
//
//go:noinline
func makeRoom(i int) byte {
	var frame [24 << 10]byte
	frame[i] = 1
	return frame[i/2]
}

// makeSomeRoom is for what happens before the filters run in a goroutine of
// their own.
//
//go:noinline
func makeSomeRoom(i int) byte {
	var frame [12 << 10]byte
	frame[i] = 1
	return frame[i/2]
}
