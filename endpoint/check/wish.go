package check

import (
	"fmt"
)

// AnnotationCheck, on a Service or an EndpointSlice, asks for health checks:
// http:/healthz, tcp and so on (Parse). The settings of the check have
// annotations of their own that begin with it: fairway.dev/health-check-interval,
// -timeout, -rise, -fall, -status, -text, -port and -host.
const AnnotationCheck = "fairway.dev/health-check"

// AnnotationAllFailed says what becomes of a Service none of whose endpoints is
// healthy: keep (the default) has all of them take traffic, as if none was
// checked; drop has none take any.
const AnnotationAllFailed = AnnotationCheck + "-all-failed"

// Wish is what an object asks for.
type Wish struct {
	Spec *Spec // nil asks for no checks
	Drop bool  // none takes traffic if none is healthy
}

// ReadWish reads the annotations of a Service or EndpointSlice. Each problem names
// its annotation; what can't be read has its default, but without a valid
// AnnotationCheck there are no checks.
func ReadWish(annotations map[string]string) (wish Wish, problems []error) {
	text, given := annotations[AnnotationCheck]
	if !given {
		return Wish{}, nil
	}
	spec, err := Parse(text)
	if err == nil && !spec.Remote() {
		err = fmt.Errorf("%q: only a file on the machine itself may ask for a command", text)
	}
	if err != nil {
		return Wish{}, []error{fmt.Errorf("annotation %s is ignored: %w", AnnotationCheck, err)}
	}
	for _, setting := range Settings() {
		name := AnnotationCheck + "-" + setting.Name
		if value, given := annotations[name]; given {
			if err := setting.Set(&spec, value); err != nil {
				problems = append(problems, fmt.Errorf("annotation %s is ignored: %w", name, err))
			}
		}
	}
	wish.Spec = &spec
	switch value := annotations[AnnotationAllFailed]; value {
	case "", "keep":
	case "drop":
		wish.Drop = true
	default:
		problems = append(problems, fmt.Errorf("annotation %s is ignored: %q: must be keep or drop", AnnotationAllFailed, value))
	}
	return wish, problems
}

// Asks reports whether annotations ask for checks, well or badly.
func Asks(annotations map[string]string) bool {
	_, given := annotations[AnnotationCheck]
	return given
}
