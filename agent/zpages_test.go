package agent

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestPagesOfComponents: what Kubernetes' components serve about themselves.
func TestPagesOfComponents(t *testing.T) {
	r := newRig(t)
	r.node(firstAddress, "")
	r.config.ZPages = ZPages{Flags: map[string]string{"mode": "nftables", "v": "2"}, Version: "0.3.1"}
	r.start()
	r.eventually("well", status("/healthz", 200))
	r.eventually("alive", status("/livez", 200))
	shows := func(path, part string) func() bool {
		return func() bool { _, text := get(metricsAddress, path); return strings.Contains(text, part) }
	}
	for _, line := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthcheck{name="rules",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="livez"} `, `process_start_time_seconds `,
	} {
		r.eventually(line, shows("/metrics/slis", line))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+metricsAddress+"/metrics/slis", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close() //nolint:errcheck // of a response
	if _, text := get(metricsAddress, "/metrics/slis"); strings.Contains(text, "healthchecks_total{") {
		t.Errorf("not reset: %s", text)
	}
	// As text, they have ever other delimiters, so that nobody parses that.
	for path, parts := range map[string][]string{
		"/flagz":   {`"kind":"Flagz"`, `"mode":"nftables"`, `"v":"2"`},
		"/statusz": {`"kind":"Statusz"`, `"binaryVersion":"0.3.1"`, `"/configz"`},
	} {
		kind := map[string]string{"/flagz": "Flagz", "/statusz": "Statusz"}[path]
		text := structured(t, path, kind)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in %s", path, part, text)
			}
		}
		r.eventually("text", shows(path, componentName))
	}

	next := r.config
	next.ZPages.NoFlagz, next.ZPages.NoStatusz = true, true
	r.updates <- Update{Config: next}
	for _, path := range []string{"/flagz", "/statusz"} {
		r.eventually("no "+path, func() bool { code, _ := get(metricsAddress, path); return code == http.StatusNotFound })
	}
}

// structured asks for a page as an object of the API config.k8s.io.
func structured(t *testing.T, path, kind string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metricsAddress+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;v=v1beta1;g=config.k8s.io;as="+kind)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // of a response
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
