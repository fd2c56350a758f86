package doctor

import (
	"encoding/xml"
	"fmt"
	"io"
)

// What JUnit's reports have, as build servers read them.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr,omitempty"`
		Line    int           `xml:"line,attr,omitempty"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Skipped *junitSkipped `xml:"skipped,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the findings as build servers read tests: a case for each finding, which
// fails from a grade on, and one for each thing that was looked at without any.
func (o Outcomes) WriteJUnit(out io.Writer, failOn Grade) error {
	suite := junitSuite{Name: "fairway doctor"}
	for _, of := range o.Failed {
		f := of.Finding
		c := junitCase{Name: f.Code.String() + " " + cause(f.Code).Title, Class: orElse(of.Object, "machine")}
		if p, there := o.place(of); there {
			c.File, c.Line = p.File, p.Line
		}
		if f.Grade >= failOn {
			suite.Failures++
			c.Failure = &junitFailure{Message: f.text(), Type: f.Grade.String(), Text: fmt.Sprintf("%s\nfix: %s\n", f.text(), f.Fix)}
		} else {
			c.Output = f.Grade.String() + ": " + f.text()
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, name := range o.Passed {
		suite.Cases = append(suite.Cases, junitCase{Name: "no finding", Class: name})
	}
	for _, text := range o.NotChecked {
		suite.Skipped++
		suite.Cases = append(suite.Cases, junitCase{Name: "not checked", Class: "fairway doctor", Skipped: &junitSkipped{text}})
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return fmt.Errorf("write JUnit report: %w", err)
	}
	_, err := io.WriteString(out, "\n")
	return err
}
