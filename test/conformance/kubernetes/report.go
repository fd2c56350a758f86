package main

import (
	"fmt"
	"io"
	"strings"
)

const head = `# Kubernetes' conformance behaviours

Written by ` + "`make check NAME=api-conformance`" + `, which runs the published tests of Kubernetes %s, unchanged, against ` + "`fairway server`" + ` alone: no machine, no agent, no lab.
Of the %d behaviours that make a Kubernetes cluster, %d pass there%s; the others are not run, for the reason given. Most of those need pods that run, which a server
does not (` + "`fairway lab`" + ` does), or kinds that are not served.

`

// report writes the page: a table per group of the published list.
func report(out io.Writer, version string, behaviours []string, reasons []reason, results map[string]string) error {
	var body strings.Builder
	passed, failed, group := 0, 0, ""
	for _, name := range behaviours {
		sig, rest, _ := strings.Cut(strings.TrimPrefix(name, "["), "] ")
		if sig != group {
			group = sig
			fmt.Fprintf(&body, "## %s\n\n| behaviour | result |\n|---|---|\n", sig)
		}
		base := strings.TrimSuffix(name, suffix)
		if before, _, found := strings.Cut(name, suffix); found {
			base = before
		}
		result := whyNot(name, reasons)
		switch {
		case result != "":
			result = "not run: " + result
		case results[base] == "passed":
			result = "**pass**"
			passed++
		case results[base] == "":
			return fmt.Errorf("%s: it has not run, and reasons.txt has no reason", name)
		default:
			result = "FAILS"
			failed++
		}
		fmt.Fprintf(&body, "| %s | %s |\n", strings.ReplaceAll(strings.ReplaceAll(rest, suffix, ""), "|", `\|`), result)
	}
	failing := ""
	if failed > 0 {
		failing = fmt.Sprintf(" and %d fail", failed)
	}
	if _, err := fmt.Fprintf(out, head, version, len(behaviours), passed, failing); err != nil {
		return err
	}
	_, err := io.WriteString(out, strings.ReplaceAll(body.String(), "\n## ", "\n\n## ")) // a blank line before each heading
	return err
}
