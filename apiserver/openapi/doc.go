// Package openapi holds the generated OpenAPI definitions of every type the
// API server serves. kubectl explain, server-side apply and field validation
// read them.
package openapi

//go:generate go tool -modfile=../../tools/go.mod openapi-gen --output-dir . --output-pkg github.com/fairway-net/fairway/apiserver/openapi --output-file zz_generated.openapi.go --go-header-file header.txt --report-filename /dev/null k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/api/networking/v1 k8s.io/api/coordination/v1 k8s.io/api/apps/v1 k8s.io/api/autoscaling/v1 k8s.io/api/rbac/v1 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/api/certificates/v1 k8s.io/api/events/v1 k8s.io/api/flowcontrol/v1 k8s.io/api/policy/v1 k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3 k8s.io/api/batch/v1 k8s.io/api/admissionregistration/v1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/api/resource
