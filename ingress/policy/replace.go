package policy

import (
	"net/http"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// replace changes what a Location or the attributes of cookies begin with.
func replace(h http.Header, r *model.Replacement) {
	if r.Name == "Location" {
		for i, value := range h["Location"] {
			if rest, found := strings.CutPrefix(value, r.From); found {
				h["Location"][i] = r.To + rest
			}
		}
		return
	}
	for i, value := range h["Set-Cookie"] {
		parts := strings.Split(value, ";")
		for j := 1; j < len(parts); j++ {
			name, text, _ := strings.Cut(strings.TrimSpace(parts[j]), "=")
			if !strings.EqualFold(name, r.Name) {
				continue
			}
			rest, found := strings.CutPrefix(text, r.From)
			if r.Name == "Domain" {
				rest, found = "", strings.EqualFold(strings.TrimPrefix(text, "."), strings.TrimPrefix(r.From, "."))
			}
			if found {
				parts[j] = " " + name + "=" + r.To + rest
			}
		}
		h["Set-Cookie"][i] = strings.Join(parts, ";")
	}
}
