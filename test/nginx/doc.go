// Package nginx holds annotations of ingress-nginx against a real nginx: the same
// requests go to an nginx with the directives to which ingress-nginx's documentation maps
// an annotation, and to the native engine with the Ingress. The answers must be the same.
package nginx
