// Package differential compares the embedded API with kube-apiserver. Both get the same
// objects, valid ones and almost valid ones, to create, update, patch, apply and delete
// without keeping them (dryRun). They must agree on what is taken, on the object with its defaults, and on
// the fields that a refusal names.
//
//   - testdata/objects.yaml: a valid object of each kind
//   - testdata/wanted.txt: differences that are wanted, each with its reason
//   - mutate_test.go: makes objects almost valid, from a seed
//   - compare_test.go: what two answers must have in common
//   - servers_test.go: the two servers
//   - differential_test.go: the test
//
// It takes Kubernetes' own programs and a network namespace: `make check NAME=differential`.
package differential
