package native

import (
	"net/http"
	"strconv"
	"strings"
)

// malformed says what is wrong with a request that net/http lets through in
// HTTP/2 though it doesn't in HTTP/1.1 (RFC 9113, 8.1.1 and 8.3.1); 0 if nothing is.
func malformed(r *http.Request) (status int, reason string) {
	if r.ProtoMajor < 2 {
		return 0, ""
	}
	lengths := r.Header["Content-Length"]
	switch {
	case strings.ContainsAny(r.RequestURI, " \t"):
		return http.StatusBadRequest, "the path has a space"
	case len(lengths) > 1:
		return http.StatusBadRequest, "there are several lengths"
	case len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10):
		return http.StatusBadRequest, "the length is not that of the body"
	}
	return 0, ""
}
