// Command api-conformance knows Kubernetes' published conformance behaviours and which
// of them a Fairway server is held to:
//
//	api-conformance focus                     the regular expression of those to run
//	api-conformance report VERSION JUNIT...   docs/results/conformance.md, from what they gave;
//	                                          of a behaviour's results the last counts
//
// reasons.txt says of the others why they aren't run: lines of a regular expression of
// the behaviour's name, a tab, and the reason. The first that matches counts.
package main

import (
	"bufio"
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kubernetes/test/conformance/testdata"
	"sigs.k8s.io/yaml"
)

//go:embed reasons.txt
var reasonsFile string

const suffix = " [Conformance]"

// behaviour is one of the published ones.
type behaviour struct {
	Name string `json:"codename"`
}

// reason is why behaviours aren't run.
type reason struct {
	names *regexp.Regexp
	text  string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "api-conformance:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	behaviours, err := published()
	if err != nil {
		return err
	}
	reasons, err := readReasons(reasonsFile)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "focus":
		return focus(out, behaviours, reasons)
	case len(args) >= 3 && args[0] == "report":
		results := map[string]string{}
		for _, file := range args[2:] {
			if err := readResults(file, results); err != nil {
				return err
			}
		}
		return report(out, args[1], behaviours, reasons, results)
	}
	return fmt.Errorf("usage: api-conformance focus | report VERSION JUNIT...")
}

func published() ([]string, error) {
	text, err := testdata.GetConformanceTestdataFS().EmbeddedFS.ReadFile("conformance.yaml")
	if err != nil {
		return nil, fmt.Errorf("read published behaviours: %w", err)
	}
	var list []behaviour
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read published behaviours: %w", err)
	}
	var names []string
	for _, b := range list {
		names = append(names, strings.Join(strings.Fields(b.Name), " "))
	}
	slices.Sort(names)
	return names, nil
}

func readReasons(text string) ([]reason, error) {
	var reasons []reason
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, why, ok := strings.Cut(line, "\t")
		names, err := regexp.Compile(pattern)
		if !ok || err != nil {
			return nil, fmt.Errorf("reasons.txt: %q: a regular expression, a tab and a reason are needed: %w", line, err)
		}
		reasons = append(reasons, reason{names, why})
	}
	return reasons, nil
}

// whyNot returns why a behaviour isn't run; "" if it is.
func whyNot(name string, reasons []reason) string {
	for _, r := range reasons {
		if r.names.MatchString(name) {
			return r.text
		}
	}
	return ""
}

func focus(out io.Writer, behaviours []string, reasons []reason) error {
	var names []string
	for _, name := range behaviours {
		if whyNot(name, reasons) == "" {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(names, "|"))
	return err
}

// readResults adds what became of each test that ran.
func readResults(file string, results map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Name   string `xml:"name,attr"`
				Status string `xml:"status,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			name, _, _ := strings.Cut(strings.TrimPrefix(c.Name, "[It] "), suffix)
			if c.Status != "skipped" {
				results[strings.Join(strings.Fields(name), " ")] = c.Status
			}
		}
	}
	return nil
}
