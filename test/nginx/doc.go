// Package nginx holds annotations of ingress-nginx against a real nginx: the same
// requests go to an nginx with the directives to which ingress-nginx's documentation maps
// an annotation, and to both engines with the Ingress. The answers must be the same.
//
// It also plays the cases of ingress-nginx's own suite (testdata/suite.txt) and of Traefik's
// (testdata/traefik.txt), of which these files have the facts. There,
//
//	# FILE                                           begins the cases of a file
//	text                                             begins a case
//	@ [tls] [host=NAMES] PATHS SERVICE ; NAME=VALUE  is an Ingress and its annotations; the host is h without more
//	> METHOD URL [NAME: VALUE & …] => STATUS [NAME=VALUE & NAME~PART & NAME!PART]
//	                                                 is a request and its answer; several of either have a | between
//	! REASON                                         is an Event that there must be
//	= text                                           says what is otherwise here
//	- text                                           says why nothing is asked
//
// A request may have body, CERTIFICATE (the client has one), *N (N times), AT-ONCE,
// STAYS and MOVES (of a client that keeps cookies) among its headers.
package nginx
