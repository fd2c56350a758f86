package oldapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	syaml "sigs.k8s.io/yaml"
)

// ConvertAll copies a file of YAML or JSON documents, each in its present form.
// Lists are converted item by item.
func ConvertAll(in io.Reader, out io.Writer) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read document %d: %w", n, err)
		}
		object := map[string]any{}
		if err := syaml.Unmarshal(text, &object); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if len(object) == 0 {
			continue
		}
		notes, err := convertWithItems(object)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if text, err = syaml.Marshal(object); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if _, err := io.Copy(out, io.MultiReader(strings.NewReader("---\n"+comments(notes)), bytes.NewReader(text))); err != nil {
			return fmt.Errorf("write document %d: %w", n, err)
		}
	}
}

func comments(notes []string) string {
	var out strings.Builder
	for _, note := range notes {
		out.WriteString("# " + note + "\n")
	}
	return out.String()
}

func convertWithItems(object map[string]any) (notes []string, err error) {
	if notes, err = Convert(object); err != nil {
		return nil, err
	}
	items, _ := object["items"].([]any)
	for i := range items {
		item, ok := items[i].(map[string]any)
		if !ok {
			continue
		}
		more, err := Convert(item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		notes = append(notes, more...)
	}
	return notes, nil
}
