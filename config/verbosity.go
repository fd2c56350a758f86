package config

import "github.com/spf13/pflag"

// AddVerbosity adds the flag of how much the Kubernetes libraries log.
func AddVerbosity(flags *pflag.FlagSet, verbosity *int) {
	flags.IntVarP(verbosity, "v", "v", 0, "log level of the Kubernetes libraries: 0 (errors only) to 10")
}
