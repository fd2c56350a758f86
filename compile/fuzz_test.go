package compile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// FuzzObjects: whatever objects an API hands out, nothing panics, the table is
// one that planes can rely on, and it goes away with the objects.
func FuzzObjects(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range txtar.Parse(data).Files {
			if strings.HasSuffix(section.Name, ".yaml") {
				f.Add(section.Data, section.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := New(testConfig)
		c.SetNode(testNode)
		for _, stream := range [][]byte{first, second} {
			if apply(c, stream) != nil {
				continue // not objects at all
			}
			if err := c.Table().Validate(); err != nil {
				t.Fatal(err)
			}
		}
		for key := range c.services {
			c.DeleteService(key.Namespace, key.Name)
		}
		for name := range c.owners {
			c.DeleteSlice(name.Namespace, name.Name)
		}
		table := c.Table()
		if table.NumFrontends()+table.NumPools()+len(c.services)+len(c.claims)+len(c.health)+len(c.exempt) > 0 {
			t.Errorf("left over: %d Services, %d claims, table\n%s", len(c.services), len(c.claims), table)
		}
	})
}
