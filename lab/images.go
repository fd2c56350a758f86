package lab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flynn/go-shlex"
)

// commands are those that stand for images: of IMAGE=COMMAND, with words and quotes
// as a shell has them.
func (c Config) commands() (map[string][]string, error) {
	out := map[string][]string{}
	var errs []error
	for _, text := range c.Images {
		image, command, found := strings.Cut(text, "=")
		words, err := shlex.Split(command)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("image %q: %w", text, err))
		case !found || image == "" || len(words) == 0:
			errs = append(errs, fmt.Errorf("image %q: must be IMAGE=COMMAND, such as whoami='/usr/local/bin/whoami --port 80'", text))
		default:
			out[image] = words
		}
	}
	return out, errors.Join(errs...)
}
