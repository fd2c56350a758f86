// Package collect gathers what diagnosis starts from: API objects, from the API with the
// user's own rights or from manifests, and the agents of nodes. Where the API can't be asked,
// what agents have in force takes the objects' place.
//
//	objects.go   all objects, and the way to the API
//	service.go   what a question about one Service takes
//	inforce.go   what agents have in force
//	bundle.go    a bundle in the API's place
//	agents.go    agents on this machine, in the lab and elsewhere
//	firstanswer.go  an API server that hangs
package collect
