//go:build ipvs

package planes

// withIPVS adds what takes long in the virtual machine: TestSwitch changes planes for ipvs and
// back, and TestUpgrade kills it: `make check NAME=ipvs`.
const withIPVS = true
