package native

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// malformed says what is wrong with a request that net/http lets through in
// HTTP/2 though it doesn't in HTTP/1.1 (RFC 9113, 8.1.1 and 8.3.1); "" if nothing is.
func malformed(r *http.Request) string {
	if r.ProtoMajor < 2 {
		return ""
	}
	lengths := r.Header["Content-Length"]
	switch {
	case r.Host == "" || !httpguts.ValidHostHeader(r.Host):
		return "the authority is none"
	case strings.ContainsAny(r.RequestURI, " \t"):
		return "the path has a space"
	case len(lengths) > 1:
		return "there are several lengths"
	case len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10):
		return "the length is not that of the body"
	}
	return ""
}
