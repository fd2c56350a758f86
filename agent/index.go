package agent

import (
	"html/template"
	"net/http"
)

// indexPage is what a browser shows at the metrics address.
var indexPage = template.Must(template.New("index").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Fairway agent on {{.Node}}</title></head>
<body><h1>Fairway agent on {{.Node}}</h1>
<p>Version {{.Version}}, mode {{.Mode}}.</p>
<ul>{{range .Paths}}
<li><a href="{{.}}">{{.}}</a></li>{{end}}
</ul>
<p>Why a Service doesn't answer: <code>fairway explain svc/NAME</code>, <code>fairway doctor svc/NAME</code>.</p>
</body></html>
`))

// serveIndex lists the pages at the metrics address.
func (a *Agent) serveIndex(paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		page := map[string]any{"Node": a.config.NodeName, "Version": a.config.version(), "Mode": a.Mode(), "Paths": paths}
		if err := indexPage.Execute(w, page); err != nil {
			return // the client went away
		}
	}
}
