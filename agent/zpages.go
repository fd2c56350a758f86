package agent

import (
	"cmp"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
)

// componentName is what /flagz and /statusz call this component.
const componentName = "fairway"

// ZPages are the pages about the process itself that kube-proxy has since 1.32.
type ZPages struct {
	// NoFlagz and NoStatusz take a page away, as kube-proxy's feature gates
	// ComponentFlagz and ComponentStatusz do.
	NoFlagz, NoStatusz bool
	// Flags, by name, are what /flagz shows; nil is no /flagz.
	Flags map[string]string
	// Version is what /statusz shows, if it can be read as one.
	Version string
}

// GetFlagz is part of flagz.Reader.
func (z ZPages) GetFlagz() map[string]string { return z.Flags }

// version is what the agent says of itself; "dev" if it doesn't know.
func (c *Config) version() string { return cmp.Or(c.ZPages.Version, "dev") }

// serveZPages adds /flagz (KEP-4828) and /statusz (KEP-4827), which lists the
// other paths.
func (a *Agent) serveZPages(mux *http.ServeMux, paths []string) {
	z := a.config.ZPages
	if z.Flags != nil {
		flagz.Install(gated{mux, func() bool { return !a.configured.Load().ZPages.NoFlagz }}, componentName, z)
		paths = append(slices.Clone(paths), flagz.DefaultFlagzPath)
	}
	binary, err := version.ParseSemantic(z.Version)
	if err != nil { // a build from between releases, such as "1f00ba7"
		binary = version.MustParseSemantic("0.0.0").WithPreRelease(a.config.version())
	}
	status := statusz.NewRegistry(compatibility.NewEffectiveVersion(binary, false, binary, binary), statusz.WithListedPaths(paths))
	statusz.Install(gated{mux, func() bool { return !a.configured.Load().ZPages.NoStatusz }}, componentName, status)
}

// gated is a mux whose pages are there while open says so.
type gated struct {
	mux  *http.ServeMux
	open func() bool
}

// Handle is what the libraries ask of a mux.
func (g gated) Handle(path string, handler http.Handler) {
	g.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if !g.open() {
			http.NotFound(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
