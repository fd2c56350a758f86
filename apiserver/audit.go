package apiserver

import (
	"errors"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
)

// Audit says which requests are written down (audit.k8s.io/v1), and where.
type Audit struct {
	// PolicyFile is Kubernetes' audit policy; without it nothing is written.
	PolicyFile string
	// LogPath is the file that events are appended to, as lines of JSON; "-" is
	// standard output.
	LogPath string
	// MaxSize is the size in megabytes at which the file is put aside, and
	// MaxBackups how many of those are kept; 0 for all.
	MaxSize, MaxBackups int
}

func (a *Audit) validate() error {
	if (a.PolicyFile == "") != (a.LogPath == "") {
		return errors.New("audit: the policy file and the log's path belong together")
	}
	return nil
}

func (a *Audit) apply(config *genericapiserver.Config) error {
	if a.PolicyFile == "" {
		return nil
	}
	o := options.NewAuditOptions()
	o.PolicyFile = a.PolicyFile
	o.LogOptions.Path, o.LogOptions.MaxSize, o.LogOptions.MaxBackups = a.LogPath, a.MaxSize, a.MaxBackups
	if err := errors.Join(o.Validate()...); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := o.ApplyTo(config); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
