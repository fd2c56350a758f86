package planes

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSwapFamilies holds that swapping twice gives the case back.
func TestSwapFamilies(t *testing.T) {
	paths, err := filepath.Glob(everyCase)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		once, err := SwapFamilies(data)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		twice, err := SwapFamilies(once)
		if err != nil {
			t.Fatalf("%s, swapped: %v", path, err)
		}
		thrice, err := SwapFamilies(twice)
		if err != nil {
			t.Fatalf("%s, swapped twice: %v", path, err)
		}
		if string(thrice) != string(once) {
			t.Errorf("%s: swapped three times and once, the case differs:\n%s\n%s", path, thrice, once)
		}
		if string(once) == string(data) {
			t.Errorf("%s: swapped, the case is the same", path)
		}
	}
}
