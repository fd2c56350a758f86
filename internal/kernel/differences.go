package kernel

import (
	"strings"
	"time"
)

// ReadingPeriod is how often planes read back what the kernel holds although its own
// count of changes says that nobody else has changed anything.
const ReadingPeriod = 10 * time.Minute

// Differences are what a comparison of the kernel with a table found.
type Differences struct {
	// Found has a text for each difference: what it is about, what is there, and
	// what should be. So what somebody broke is the same in the next comparison,
	// and a change that was just being made isn't.
	Found map[string]struct{}
	// Spare says that there is more than it takes, which does no harm.
	Spare bool
}

// Add notes a difference.
func (d *Differences) Add(about ...string) {
	if d.Found == nil {
		d.Found = map[string]struct{}{}
	}
	d.Found[strings.Join(about, "\x00")] = struct{}{}
}

// Keep leaves those differences only that another comparison found, too.
func (d *Differences) Keep(other Differences) {
	for text := range d.Found {
		if _, too := other.Found[text]; !too {
			delete(d.Found, text)
		}
	}
}
