// Package diagnosis has the commands that say why: explain, doctor, trace, flows, dump, bundle, render, web. Each file says what its command parses and
// what it calls.
package diagnosis
