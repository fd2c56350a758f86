// Package publish lets a machine register what it runs. For every file in a
// folder, the agent keeps endpoints in EndpointSlices of its own. They are ready
// while the process answers, and are drained before they are removed. A machine
// publishes endpoints only: somebody with the right to must create the Service.
//
//	file.go       what a file says
//	folder.go     the files, followed
//	service.go    which port of a Service an endpoint is of
//	slice.go      an endpoint as an EndpointSlice
//	plan.go       which endpoints are checked, and how
//	publisher.go  the loop: Services, slices and verdicts in, writes out
//	write.go      what is written, and drained
package publish
