package planes

import (
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// request is one line to the process in which the plane lives.
type request struct {
	Op     string // "apply", "compare", "dump", "remove", "retire", "drifted"
	Change *model.Delta
	Verify bool
}

// reply is one line back.
type reply struct {
	Err     string
	Missing bool // the error is a kernel.MissingError
	// Unsupported is in the reply to nothing, when the plane has been made. Earlier
	// versions, which take part in TestUpgrade, call it Lacks.
	Unsupported []kernel.Unsupported `json:"Lacks"`
	Text        string               // "compare": how wanted and actual objects differ, "" if not; "dump": the objects
	Drifts      int                  // "drifted": how often the plane said so since the last time asked
}
