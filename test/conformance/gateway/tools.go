//go:build tools

// Package conformance runs Gateway API's own suite; its tests are all there is.
package conformance

import _ "sigs.k8s.io/gateway-api-conformance-images/echo-basic" // the pods' program
