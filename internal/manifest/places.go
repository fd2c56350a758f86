package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Place is where an object is written.
type Place struct {
	File string
	Line int // that its document, or its item of a List, begins with; the first is 1
}

// String is "file:line".
func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Places says where the objects of files are written, by "Kind namespace/name", or "Kind name"
// for what may be in no namespace. It reads what [Read] reads, but for standard input; what isn't
// YAML is left out.
func Places(paths ...string) map[string]Place {
	places := map[string]Place{}
	for _, path := range paths {
		for _, file := range filesOf(path) {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // which Read says
			}
			line := 1
			for _, document := range documents(string(text)) {
				node := &yaml.Node{}
				if err := yaml.Unmarshal([]byte(document), node); err == nil && len(node.Content) == 1 {
					placesOf(places, node.Content[0], file, line)
				}
				line += strings.Count(document, "\n")
			}
		}
	}
	return places
}

// filesOf are the files that a path stands for: those of a folder with the endings that kubectl
// takes.
func filesOf(path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	return list
}

// documents cuts a file where lines with three hyphens begin another document. Together they are
// the file.
func documents(text string) []string {
	var list []string
	begin := 0
	for i := 0; i < len(text); {
		end := strings.IndexByte(text[i:], '\n') + 1
		if end == 0 {
			end = len(text) - i
		}
		if strings.HasPrefix(text[i:], "---") && i > begin {
			list, begin = append(list, text[begin:i]), i
		}
		i += end
	}
	return append(list, text[begin:])
}

// placesOf notes where an object is, or those of a List. The node is of a document that begins
// with a line of the file.
func placesOf(places map[string]Place, node *yaml.Node, file string, first int) {
	kind := valueAt(node, "kind")
	if items := fieldOf(node, "items"); strings.HasSuffix(kind, "List") && items != nil {
		for _, item := range items.Content {
			placesOf(places, item, file, first)
		}
		return
	}
	name := valueAt(node, "metadata", "name")
	if kind == "" || name == "" {
		return
	}
	at := Place{File: file, Line: first + node.Line - 1}
	namespace := valueAt(node, "metadata", "namespace")
	if namespace == "" {
		places[kind+" "+name] = at
		namespace = corev1.NamespaceDefault
	}
	places[kind+" "+namespace+"/"+name] = at
}

// fieldOf is the value of a mapping's field; nil if it has none.
func fieldOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; node != nil && node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// valueAt is the text of a field of fields; "" if there is none.
func valueAt(node *yaml.Node, fields ...string) string {
	for _, name := range fields {
		node = fieldOf(node, name)
	}
	if node == nil {
		return ""
	}
	return node.Value
}
