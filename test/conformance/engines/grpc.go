package engines

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/test/wait"
)

// grpcCases are the cases of gRPC's interoperability tests that its client for Go has and
// that ask neither for an account of a cloud nor for a server that says which one it is.
var grpcCases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response",
	"status_code_and_message", "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service",
}

// GRPC runs gRPC's interoperability tests (test/conformance/grpc) through an engine, in the
// clear and over TLS, by both address families.
func GRPC(t *testing.T, e Engine, client, server string) {
	r := &rig{t: t, Engine: e}
	const name = "grpc.example.com"
	roots := x509.NewCertPool()
	pair := certificate(t, roots, name)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &model.Pool{Name: "p", Protocol: model.H2C, Endpoints: []model.Endpoint{{Addr: grpcServer(t, server), Weight: 1}}}
	rules := []*model.Rule{below("/", to("p"))}
	open, secure := &model.Listener{Name: "open"}, &model.Listener{Name: "secure", Certificates: []*tls.Certificate{pair}}
	open.SetHosts([]*model.Host{{Rules: rules}})
	secure.SetHosts([]*model.Host{{Rules: rules}})
	all := tableOf(&model.Socket{Name: "open", Port: 80, Listeners: []*model.Listener{open}}, p)
	all.Sockets = append(all.Sockets, &model.Socket{Name: "secure", Port: 443, TLS: true, Bind: netip.MustParseAddrPort("[::1]:0"), Listeners: []*model.Listener{secure}})
	r.apply(all)
	for _, socket := range []string{"open", "secure"} {
		at := r.Sockets()[socket]
		arguments := []string{"--server_host=" + at.Addr().String(), "--server_port=" + strconv.Itoa(int(at.Port()))}
		if socket == "secure" {
			arguments = append(arguments, "--use_tls", "--use_test_ca", "--ca_file="+authority, "--server_host_override="+name)
		}
		for _, test := range grpcCases {
			t.Run(socket+"/"+test, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if said, err := exec.CommandContext(ctx, client, append(arguments, "--test_case="+test)...).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, said)
				}
			})
		}
	}
}

// grpcServer runs the server of the tests until they end.
func grpcServer(t *testing.T, program string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	_ = l.Close() // the server takes it
	command := exec.Command(program, "--port="+strconv.Itoa(int(at.Port())))
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	for late := range wait.Tries(time.Minute) {
		c, err := net.Dial("tcp", at.String())
		if err == nil {
			_ = c.Close()
			break
		}
		if late {
			t.Fatalf("gRPC's server doesn't answer: %v\n%s", err, said.String())
		}
	}
	return at
}
