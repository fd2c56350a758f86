package kernel

import "testing"

func TestReleases(t *testing.T) {
	for _, c := range []struct {
		release      string
		major, minor int
		want         bool
	}{
		{"6.5.0", 6, 5, true},
		{"6.4.16", 6, 5, false},
		{"6.1.0-40-amd64", 6, 5, false},
		{"7.0-rc1", 6, 5, true},
		{"6.10-rc1", 6, 5, true},
		{"5.9", 5, 9, true},
		{"4.19.0", 5, 9, false},
		{"", 5, 9, false},
		{"linux", 0, 0, false},
	} {
		if got := releaseAtLeast(c.release, c.major, c.minor); got != c.want {
			t.Errorf("%q is at least %d.%d: %t", c.release, c.major, c.minor, got)
		}
	}
	if !AtLeast(3, 13) {
		t.Error("this kernel is said to be older than nf_tables")
	}
}
