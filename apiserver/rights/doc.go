// Package rights decides who may do what.
//
//   - authorizer.go: the order in which the deciders below are asked
//   - rbac.go, match.go: Roles and bindings (rbac.authorization.k8s.io/v1)
//   - escalation.go: nobody grants what they don't have
//   - node.go, noderules.go: what a machine's credential may do, and nothing else
//   - peersecrets.go: the Secrets that BGPPeers refer to
//   - gateway.go: what a gateway's credential may do, and the Secrets that are referred to
//   - referred.go: names that something refers to, listed no more often than needed
//   - nodeadmission.go: what a machine may write into the objects it may write
//   - roles.go: the roles that every cluster has
//   - reconcile.go: keeps them there
package rights
