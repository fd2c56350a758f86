package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// names of what has no subject: what is written last.
var unstated = map[string]bool{"SHA256SUMS": true, "SHA256SUMS.sig": true}

// writeProvenance writes what made the files of a folder, as an in-toto statement of SLSA's provenance (v1).
// It is the builder's word: that somebody else gets the same bytes from the commit is the proof.
func (r release) writeProvenance(commit, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("fairway_%s.provenance.json", r.version)
	var subjects []map[string]any
	for _, e := range entries {
		if !e.Type().IsRegular() || unstated[e.Name()] || e.Name() == name {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		subjects = append(subjects, map[string]any{"name": e.Name(), "digest": map[string]string{"sha256": hex.EncodeToString(sum[:])}})
	}
	return writeJSON(filepath.Join(folder, name), map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          "https://github.com/fairway-net/fairway/blob/main/hack/release/build",
				"externalParameters": map[string]string{"version": r.version},
				"internalParameters": map[string]string{"go": runtime.Version()},
				"resolvedDependencies": []map[string]any{{
					"uri": "git+https://github.com/fairway-net/fairway", "digest": map[string]string{"gitCommit": commit},
				}},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": "https://github.com/fairway-net/fairway/blob/main/Makefile#release"}},
		},
	})
}
