// Command probe is the program of a real cluster's pods: a server that says who it is
// and whom it sees, and a client that asks what it is told. Without arguments it waits,
// as the first process of a pod's sandbox does.
//
//	probe [--serve NAME --port 8080...] [--bodies :8081] [--ask :9099]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/test/realcluster"
)

// lingering is how long the last clients may take to hear that the server goes.
const lingering = 10 * time.Second

func main() {
	name := flag.String("serve", "", "answer as NAME, at --port by TCP, HTTP and UDP")
	var ports []echo.Port
	flag.Func("port", "a port to answer at", func(text string) error {
		number, err := strconv.ParseUint(text, 10, 16)
		ports = append(ports, echo.Port{Number: uint16(number)}, echo.Port{Number: uint16(number), Protocol: "UDP"})
		return err
	})
	bodies := flag.String("bodies", "", "address at which requests' bodies are sent back")
	ask := flag.String("ask", "", "address at which it is told what to ask")
	linger := flag.Bool("linger", false, "answer for some seconds after being told to end, as well-behaved servers do")
	flag.Parse()
	if err := run(*name, ports, *bodies, *ask, *linger); err != nil {
		log.Fatal(err)
	}
}

func run(name string, ports []echo.Port, bodies, ask string, linger bool) error {
	// Processes whose parents are gone are this one's, in a sandbox that shares its processes.
	signal.Ignore(syscall.SIGCHLD)
	failed := make(chan error, 3)
	if len(ports) > 0 {
		server, err := echo.Start(name, ports, func(f func() error) error { return f() })
		if err != nil {
			return err
		}
		defer server.Close()
	}
	if bodies != "" {
		go func() { failed <- http.ListenAndServe(bodies, http.HandlerFunc(sendBack)) }()
	}
	if ask != "" {
		go func() { failed <- realcluster.Serve(ask) }()
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case <-end:
		if linger {
			time.Sleep(lingering)
		}
		return nil
	}
}

// sendBack answers with the request's body.
func sendBack(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, err := fmt.Fprint(w, string(body)); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		log.Print(strings.TrimSpace(err.Error()))
	}
}
