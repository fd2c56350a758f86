package engines

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// Why an engine may answer some of h2spec's cases differently.
const (
	malformedAnswer = "the answer is a 400, which RFC 9113 allows before the stream ends (8.1.1); nothing is passed on (testFrames)"
	otherProtocol   = "a port in the clear serves HTTP/1.1, too: what is no preface is a bad request of that"
	settingTwice    = "net/http ends connections whose SETTINGS frame says a thing twice, which no client does"
)

var otherwise = map[string]string{
	"Sends a HEADERS frame that contains the connection-specific header field":                     malformedAnswer,
	`Sends a HEADERS frame that contains the TE header field with any value other than "trailers"`: malformedAnswer,
	"Sends invalid connection preface":                                                             otherProtocol,
	"Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                                        settingTwice,
}

// H2spec runs h2spec (test/conformance/h2spec), with its strict cases, against an engine: in the
// clear and over TLS.
func H2spec(t *testing.T, e Engine, program string) {
	r := &rig{t: t, Engine: e}
	endpoint := r.endpoint("e", func(w http.ResponseWriter, q *http.Request) {
		time.Sleep(50 * time.Millisecond) // lest there never are more streams than are allowed
		_, _ = io.WriteString(w, "some text")
	})
	rules := []*model.Rule{below("/", to("p"))}
	open, secure := &model.Listener{Name: "open"}, &model.Listener{Name: "secure"}
	open.SetHosts([]*model.Host{{Rules: rules}})
	secure.SetHosts([]*model.Host{{Rules: rules}})
	secure.Certificates = []*tls.Certificate{certificate(t, x509.NewCertPool(), "h")}
	all := tableOf(&model.Socket{Name: "open", Port: 80, Listeners: []*model.Listener{open}}, pool("p", endpoint))
	all.Sockets = append(all.Sockets, &model.Socket{Name: "secure", Port: 443, TLS: true, Bind: netip.MustParseAddrPort("[::1]:0"), Listeners: []*model.Listener{secure}})
	r.apply(all)
	t.Run("open", func(t *testing.T) { h2spec(t, program, r.Sockets()["open"]) })
	t.Run("secure", func(t *testing.T) { h2spec(t, program, r.Sockets()["secure"], "--tls", "--insecure") })
}

func h2spec(t *testing.T, program string, at netip.AddrPort, arguments ...string) {
	host := at.Addr().String()
	if at.Addr().Is6() {
		host = "[" + host + "]"
	}
	report := filepath.Join(t.TempDir(), "report.xml")
	arguments = append(arguments, "--strict", "--timeout", "10", "--host", host, "--port", strconv.Itoa(int(at.Port())), "--junit-report", report)
	said, err := exec.Command(program, arguments...).CombinedOutput()
	data, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var found struct {
		Suites []struct {
			Cases []struct {
				Section string    `xml:"package,attr"`
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"` // what failures are, too
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &found); err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, s := range found.Suites {
		for _, c := range s.Cases {
			all++
			failed := c.Failure != nil || c.Error != nil
			if reason, known := otherwise[c.Name]; failed && known {
				t.Logf("otherwise: %s %s: %s", c.Section, c.Name, reason)
			} else if failed {
				t.Errorf("%s %s", c.Section, c.Name)
			}
		}
	}
	if t.Failed() || all < 100 {
		t.Errorf("%d cases:\n%s", all, said)
	}
}
