package compile

import (
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestReadEject: values of the annotation.
func TestReadEject(t *testing.T) {
	for text, want := range map[string]*model.Eject{
		"": nil, "false": nil,
		"true":                                  {Errors: 5, For: 10 * time.Second, Most: 5 * time.Minute},
		"errors=2":                              {Errors: 2, For: 10 * time.Second, Most: 5 * time.Minute},
		"errors=2, share=30%, for=1m, most=30s": {Errors: 2, Share: 30, For: time.Minute, Most: time.Minute},
	} {
		got, err := readEject(text)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"yes", "errors=0", "errors=x", "share=101%", "for=0s", "for=ten", "time=1s", "errors=1,,"} {
		if got, err := readEject(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}
