package program

import "github.com/fairway-net/fairway/model"

// Transition is what connections are to be brought into line with.
type Transition struct {
	Old, Want       *model.Table // a nil old says that it isn't known what they were in line with
	RemovedBackends []uint32     // the ids of backends that are in old and not in want
	Verify          bool         // bring into line what was missed, too
}
