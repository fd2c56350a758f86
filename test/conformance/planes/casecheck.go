package planes

import (
	"fmt"
	"strconv"
	"strings"
)

// check finds what is wrong with a step by itself and with what it refers to.
func (c *Case) check(s Step) error {
	switch s.Verb {
	case "apply":
		for _, name := range s.Args {
			if c.Files[name] == nil {
				return fmt.Errorf("no file %q in this case", name)
			}
		}
	case "probe":
		_, err := parseProbe(s.Args)
		return err
	case "flow", "load", "forgets":
		_, err := parseProbe(s.Args[1:])
		return err
	case "endpoints":
		_, err := parseEndpoints(s.Args)
		return err
	case "via":
		if s.Args[0] != NodeName && s.Args[0] != peerName {
			return fmt.Errorf("%q: must be %s or %s", s.Args[0], NodeName, peerName)
		}
	case "delete":
		if s.Args[0] != "service" && s.Args[0] != "endpointslice" {
			return fmt.Errorf("kind %q: must be service or endpointslice", s.Args[0])
		}
		_, _, err := splitName(s.Args[1])
		return err
	}
	return nil
}

// splitName splits "namespace/name".
func splitName(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("name %q: must be NAMESPACE/NAME", text)
	}
	return namespace, name, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: must be a number from 1 to 65535", text)
	}
	return uint16(n), nil
}
