//go:build ipvs || kernels || sites

package planes

// allInMachine has every case played in the virtual machine, those of one IP family with the
// families swapped, too, as they are elsewhere.
const allInMachine = true
