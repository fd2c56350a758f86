//go:build ipvs || kernels || sites

package planes

// swappedInMachine has cases that send packets of one IP family played in the virtual machine with
// the families swapped, too, as they are elsewhere. A run of all tests plays each once there.
const swappedInMachine = true
