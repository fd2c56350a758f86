package collect

import (
	"errors"

	"github.com/fairway-net/fairway/diagnose/bundle"
)

// readBundle reads the bundle among the files, if there is one; it stands alone.
func (s *Source) readBundle() error {
	if s.bundle != nil {
		return nil
	}
	for _, name := range s.Files {
		switch {
		case !bundle.IsName(name):
		case len(s.Files) > 1:
			return errors.New("--filename: a bundle stands alone, without other files")
		default:
			var err error
			s.bundle, err = bundle.Read(name)
			return err
		}
	}
	return nil
}

// Bundle is the bundle that the objects were read from; nil if they are from elsewhere.
func (s *Source) Bundle() *bundle.Contents { return s.bundle }
