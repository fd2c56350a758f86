package web

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// TestToken: the token lets one browser in, once; the cookie does from then on.
func TestToken(t *testing.T) {
	r := start(t, "", nil)
	token := r.page.Token()
	check := func(what, path string, want int) {
		t.Helper()
		response := r.do(http.MethodGet, path, nil)
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d", what, response.Status, want)
		}
		if response.Header.Get("Content-Security-Policy") != policy || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", what, response.Header)
		}
	}
	check("without a token", "/", http.StatusForbidden)
	check("the API without a cookie", "/api/v1/summary", http.StatusForbidden)
	check("a file without a cookie", "/main.js", http.StatusForbidden)
	check("a wrong token", "/?token=wrong", http.StatusForbidden)
	check("an empty token", "/?token=", http.StatusForbidden)
	check("the token elsewhere", "/api/v1/summary?token="+token, http.StatusForbidden)

	response := r.do(http.MethodGet, "/?token="+token, nil)
	cookies := response.Cookies()
	if response.StatusCode != http.StatusOK || len(cookies) != 1 {
		t.Fatalf("the token: %s, %v", response.Status, cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || strings.Contains(c.Value, token) {
		t.Errorf("the cookie is %v", c)
	}
	check("the token again", "/?token="+token, http.StatusForbidden)
	r.cookie = &http.Cookie{Name: cookies[0].Name, Value: "guessed"}
	check("a wrong cookie", "/api/v1/summary", http.StatusForbidden)
	r.cookie = cookies[0]
	check("the cookie", "/api/v1/summary", http.StatusOK)
	check("the page", "/", http.StatusOK)
	check("the old URL with the cookie", "/?token="+token, http.StatusOK)

	r.cookie = nil
	again := r.page.Token()
	r.page.Token()
	check("a token that another one has replaced", "/?token="+again, http.StatusForbidden)
}

// TestStrangers: a browser that has the cookie is asked by other pages.
func TestStrangers(t *testing.T) {
	examined := 0
	r := start(t, "", func(_ *fakeapi.Server, c *Config) {
		c.Examine = func(context.Context, string, string, string) (*doctor.Report, error) {
			examined++
			return &doctor.Report{}, nil
		}
	}).enter()
	const examine = "/api/v1/services/default/web/examine"
	for _, c := range []struct {
		what, method, path string
		header             map[string]string
		want               int
	}{
		{"a name that leads here", "GET", "/api/v1/summary", map[string]string{"Host": "attacker.example"}, http.StatusForbidden},
		{"with a port", "GET", "/", map[string]string{"Host": "attacker.example:80"}, http.StatusForbidden},
		{"with our name in it", "GET", "/", map[string]string{"Host": "localhost.attacker.example"}, http.StatusForbidden},
		{"another machine's address", "GET", "/", map[string]string{"Host": "192.0.2.1"}, http.StatusForbidden},
		{"localhost, forwarded by ssh", "GET", "/api/v1/summary", map[string]string{"Host": "localhost:9999"}, http.StatusOK},
		{"IPv6", "GET", "/api/v1/summary", map[string]string{"Host": "[::1]:9999"}, http.StatusOK},
		{"another site", "GET", "/api/v1/summary", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"another port", "GET", "/api/v1/summary", map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"a script of another site", "GET", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		{"the page itself", "GET", "/api/v1/summary", map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		{"a form of another site", "POST", examine, map[string]string{"Origin": "http://attacker.example"}, http.StatusForbidden},
		{"a form, by its site", "POST", examine, map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"the page's button", "POST", examine, map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		{"examine by reading", "GET", examine, nil, http.StatusNotFound},
		{"writing", "POST", "/api/v1/services", nil, http.StatusMethodNotAllowed},
		{"writing one", "PUT", "/api/v1/services/default/web", nil, http.StatusMethodNotAllowed},
		{"deleting", "DELETE", "/api/v1/services/default/web", nil, http.StatusMethodNotAllowed},
		{"a way out", "GET", "/..%2f..%2fserve.go", nil, http.StatusNotFound},
	} {
		if response := r.do(c.method, c.path, c.header); response.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.what, response.Status, c.want)
		}
	}
	if examined != 1 {
		t.Errorf("examined %d times", examined)
	}
}

// TestNothingLeaks: neither the user's credential nor the session reaches the page.
func TestNothingLeaks(t *testing.T) {
	r := start(t, shop, nil).enter()
	until(r, "summary", func(s Summary) bool { return s.Synced && s.Services == 2 })
	for _, path := range []string{"/", "/main.js", "/api/v1/summary", "/api/v1/problems", "/api/v1/services", "/api/v1/services/default/web", "/api/v1/nodes", "/api/v1/changes"} {
		response := r.do(http.MethodGet, path, nil)
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{credential, r.page.guard.session, r.page.Token()} {
			if strings.Contains(string(body), secret) {
				t.Errorf("%s has a secret in it", path)
			}
		}
	}
}
