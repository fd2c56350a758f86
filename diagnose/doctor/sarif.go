package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
)

// helpPage says more of every code.
const helpPage = "https://github.com/fairway-net/fairway/blob/main/docs/how-to/diagnosis.md"

// What a log in SARIF 2.1.0 (OASIS) has of findings: names are the format's. Libraries for it
// write every optional field, and have a program carry the schema.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool        `json:"executionSuccessful"`
		Notifications       []sarifNote `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNote struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarifLevels are the grades in the format's words.
var sarifLevels = map[Grade]string{Note: "note", Likely: "warning", Proved: "error"}

// WriteSARIF writes the findings as a SARIF 2.1.0 log, as code scanners do: a rule for each code
// that was found, a result for each finding. version is the program's.
func (o Outcomes) WriteSARIF(out io.Writer, version string) error {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "fairway doctor", Version: version, InformationURI: helpPage, Rules: []sarifRule{}}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true}}, Results: []sarifResult{},
	}
	for _, text := range o.NotChecked {
		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications, sarifNote{"note", sarifText{"not checked: " + text}})
	}
	indices := map[Code]int{}
	for _, of := range o.Failed {
		f := of.Finding
		at, known := indices[f.Code]
		if !known {
			at = len(run.Tool.Driver.Rules)
			indices[f.Code] = at
			c := cause(f.Code)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{c.Code.String(), sarifText{c.Title}, sarifText{c.Meaning}, sarifText{c.Fix}, helpPage})
		}
		message := f.text()
		if f.Fix != "" {
			message += "\nFix: " + f.Fix
		}
		sum := sha256.Sum256([]byte(f.Code.String() + "\n" + of.Object + "\n" + f.What))
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Code.String(), RuleIndex: at, Level: sarifLevels[f.Grade], Message: sarifText{message},
			Locations: o.sarifLocations(of), Fingerprints: map[string]string{"finding/v1": hex.EncodeToString(sum[:8])},
		})
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

// sarifLocations are where a finding is: its object, and the line of the file, if it is of one.
func (o *Outcomes) sarifLocations(of Outcome) []sarifLocation {
	if of.Object == "" {
		return nil
	}
	l := sarifLocation{Logical: []sarifLogical{{of.Object, "resource"}}}
	if p, there := o.place(of); there {
		uri := strings.ReplaceAll(filepath.ToSlash(filepath.Clean(p.File)), " ", "%20")
		l.Physical = &sarifPhysical{sarifArtifact{uri}, sarifRegion{p.Line}}
	}
	return []sarifLocation{l}
}
