//go:build ipvs

package planes

// withIPVS has TestSwitch change planes for ipvs and back, which takes a quarter of an
// hour in the virtual machine: `make check NAME=ipvs`.
const withIPVS = true
