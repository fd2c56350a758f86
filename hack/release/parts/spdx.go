package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// unfit are the characters that an identifier of SPDX must not have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// writeSPDX writes the list of a Go binary's parts, as SPDX 2.3: each module with its version and checksum, and Go itself.
func (r release) writeSPDX(binary, file string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read %s: %w", binary, err)
	}
	main := pkg(&debug.Module{Path: info.Main.Path, Version: r.version})
	main["primaryPackagePurpose"] = "APPLICATION"
	main["licenseDeclared"] = "Apache-2.0"
	golang := pkg(&debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	packages := []map[string]any{main, golang}
	related := []map[string]string{
		{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": id(main)},
		{"spdxElementId": id(main), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": id(golang)},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p := pkg(m)
		packages = append(packages, p)
		related = append(related, map[string]string{"spdxElementId": id(main), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": id(p)})
	}
	name := strings.TrimSuffix(filepath.Base(file), ".spdx.json")
	return writeJSON(file, map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": "https://fairway.dev/spdx/" + url.PathEscape(name),
		"creationInfo":      map[string]any{"created": r.time.Format(time.RFC3339), "creators": []string{"Organization: The Fairway authors", "Tool: hack/release/parts"}},
		"packages":          packages, "relationships": related,
	})
}

// pkg is a module as SPDX has it.
func pkg(m *debug.Module) map[string]any {
	p := map[string]any{
		"SPDXID": "SPDXRef-" + unfit.ReplaceAllString(m.Path+"-"+m.Version, "-"), "name": m.Path, "versionInfo": m.Version,
		"downloadLocation": "NOASSERTION", "filesAnalyzed": false, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
		"externalRefs": []map[string]string{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if m.Sum != "" {
		p["comment"] = "go.sum: " + m.Sum
	}
	return p
}

func id(p map[string]any) string { return p["SPDXID"].(string) }

// writeJSON writes an object for people, too.
func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // for everybody
}
