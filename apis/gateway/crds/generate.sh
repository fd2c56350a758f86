#!/bin/sh
# Generate the definitions from the types of the module that go.mod names, and
# say in each which release and channel it is, as Gateway API's own do.
set -eu
cd "$(dirname "$0")"
types=sigs.k8s.io/gateway-api/apis
version=$(go list -m -f '{{.Version}}' sigs.k8s.io/gateway-api)
rm -f ./*.yaml
go tool -modfile=../../../tools/crds/go.mod controller-gen crd:maxDescLen=300 \
	"paths=$types/v1;$types/v1beta1;$types/v1alpha2;$types/v1alpha3" output:crd:dir=.
# The approval is what the API server asks of groups under k8s.io.
sed -i "0,/^  annotations:/s|^  annotations:|&\n\
    api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api/pull/4530\n\
    gateway.networking.k8s.io/bundle-version: $version\n\
    gateway.networking.k8s.io/channel: experimental|" ./*.yaml
