package install

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Args are the flags that were given, without some, as arguments.
func Args(given *pflag.FlagSet, without ...string) []string {
	var args []string
	given.Visit(func(f *pflag.Flag) {
		if slices.Contains(without, f.Name) {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				args = append(args, "--"+f.Name+"="+value)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return args
}

// Quote quotes an argument as systemd reads it in ExecStart.
func Quote(arg string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(arg) + `"`
}

// optionsFile is the file of settings that a unit reads.
func optionsFile(args []string) ([]byte, error) {
	for _, a := range args {
		if strings.ContainsAny(a, " \t\n\"'\\$") {
			return nil, fmt.Errorf("%s: systemd would split or change it: leave it out, and write it into the unit by systemctl edit", a)
		}
	}
	return []byte("# Options of this unit; systemctl restart makes a change take effect.\nOPTIONS=\"" + strings.Join(args, " ") + "\"\n"), nil
}
