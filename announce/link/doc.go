// Package link is the membership of a link: who the nodes are that announce there, and what of
// their frames may be believed. Layer 2 (l2) and connections under routers (steering) both stand
// on it; what entries mean is their matter.
//
//	frame.go        frames: all that is believed is signed, the sender's MAC too
//	keys.go         the cluster's keys; two while they are rotated
//	peers.go        who is there, and which frames are new
//	port.go         an interface's socket for frames, and how it is read
//	inlet.go        a socket that is read
//	budget.go       how many bad frames of a source are looked at
//	filter.go       what the kernel drops while a link is flooded
//	detector.go     who is gone, as the nodes of a link agree
//	foreign.go      who signs with another key
//	incarnation.go  numbers that never go back
//	question.go     questions to the kernels of nodes, which can't sign
//
// A frame is stored, answered and counted only after its signature and its number were found
// right. Signatures are checked without a lock.
package link
