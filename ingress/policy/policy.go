// Package policy says what of a client's request counts, before any rule is looked at:
// the normal form of its path, its one host, which headers and upgrades pass, whose word
// is taken for where it comes from, and which headers no route may write. Both engines,
// the compiler and explain go by it. It is pure: text in, text out.
//
//	path.go     paths: the normal form, and readings that differ
//	url.go      paths of URLs, as they came and as they are sent
//	request.go  a request as rules see it, or why it is refused
//	headers.go  which headers pass, which are ours, which no route may write
//	identity.go what clients' certificates say
//	browser.go  browsers that read cookies otherwise
//	peer.go     what trusted proxies say of the client
package policy
