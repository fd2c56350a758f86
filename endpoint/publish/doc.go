// Package publish has a machine say itself what it runs: for every file in a
// folder the agent keeps the endpoints in EndpointSlices of its own, ready for as
// long as the process answers, and drains them before they go. A machine
// publishes endpoints only; the Service, with its name and addresses, is made by
// whoever may make Services.
//
//	file.go       what a file says
//	folder.go     the files, followed
//	service.go    which port of a Service an endpoint is of
//	slice.go      an endpoint as an EndpointSlice
//	plan.go       which endpoints are checked, and how
//	publisher.go  the loop: Services, slices and verdicts in, writes out
//	write.go      what is written, and drained
package publish
