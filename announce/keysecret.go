package announce

// The Secret with the key that nodes sign their adverts with. The address controller makes it,
// and `fairway announce rotate-key` replaces the key.
const (
	KeySecret = "fairway-announce"
	KeyField  = "key"
	// PreviousKeyField has the key before the present one while it is rotated: frames are signed
	// with both, and believed with either.
	PreviousKeyField = "previous"
	// OutField names the nodes that were deleted, one on a line: their frames aren't believed,
	// whichever key they know.
	OutField = "out"
)

// LabelDrained is the label of a Node that is to announce nothing for the time being: `fairway
// drain` sets it, and takes no other away.
const LabelDrained = "fairway.dev/drained"
