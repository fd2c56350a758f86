package house

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// screen is how many lines a release may have in the changelog.
const screen = 40

var section = regexp.MustCompile(`(?m)^## (.+)$`)

// TestChangelog: releases stand newest first below what isn't released, and each fits on
// a screen.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	places := section.FindAllStringSubmatchIndex(string(text), -1)
	if len(places) < 2 || string(text[places[0][2]:places[0][3]]) != "Unreleased" {
		t.Fatal("CHANGELOG.md must begin with ## Unreleased, and have a release")
	}
	before := version.MajorMinor(999, 0)
	for i, place := range places[1:] {
		name := string(text[place[2]:place[3]])
		release, err := version.ParseSemantic(name)
		if err != nil {
			t.Fatal(err)
		}
		if !release.LessThan(before) {
			t.Errorf("## %s isn't before the one above it", name)
		}
		before = release
		end := len(text)
		if i+2 < len(places) {
			end = places[i+2][0]
		}
		if lines := strings.Count(string(text[place[0]:end]), "\n"); lines > screen {
			t.Errorf("release %s has %d lines, and may have %d: git has the history", name, lines, screen)
		}
	}
}
