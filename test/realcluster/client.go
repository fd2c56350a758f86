package realcluster

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// ControlPort is where a client that runs the probe is told what to ask.
const ControlPort = 9099

// Serve has the process ask what it is told at an address, until that fails.
func Serve(address string) error {
	var mu sync.Mutex
	var load *Load
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			log.Print(err)
		}
	}
	mux.HandleFunc("/ask", func(w http.ResponseWriter, r *http.Request) {
		answer(w, Ask(Way(r.FormValue("way")), r.FormValue("to")))
	})
	mux.HandleFunc("/load", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var counts Counts
		if load != nil {
			counts, load = load.Stop(), nil
		}
		if rate, err := strconv.Atoi(r.FormValue("rate")); err == nil && rate > 0 {
			load = StartLoad(r.FormValue("to"), rate)
		}
		answer(w, counts)
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// Client asks from somewhere in the cluster, or outside.
type Client struct {
	Name      string
	isPod     bool
	addresses []netip.Addr   // its own: IPv4, then IPv6
	node      *Node          // where it is; nil outside
	port      uint16         // where it is told
	from      *topology.Host // from where it can be reached
}

func (c *Client) get(path string, form url.Values, into any) error {
	dialing := http.Transport{DialContext: c.from.DialContext, DisableKeepAlives: true}
	http := http.Client{Transport: &dialing, Timeout: 30 * time.Second}
	response, err := http.Get("http://" + netip.AddrPortFrom(c.addresses[0], c.port).String() + path + "?" + form.Encode())
	if err != nil {
		return fmt.Errorf("tell client %s: %w", c.Name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("hear client %s: %w: %s", c.Name, err, text)
	}
	return nil
}

// Ask has the client ask.
func (c *Client) Ask(way Way, to string) (a Answer, err error) {
	return a, c.get("/ask", url.Values{"way": {string(way)}, "to": {to}}, &a)
}

// Load has the client begin connections to an address.
func (c *Client) Load(to string, perSecond int) error {
	var before Counts
	return c.get("/load", url.Values{"to": {to}, "rate": {strconv.Itoa(perSecond)}}, &before)
}

// Loaded ends the client's connections and says what became of them.
func (c *Client) Loaded() (counts Counts, err error) {
	return counts, c.get("/load", nil, &counts)
}
