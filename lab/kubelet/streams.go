package kubelet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Limits of streams, as kubelets have them.
const (
	streamIdle     = 4 * time.Hour
	streamCreation = 30 * time.Second
)

// Protocols of streams, the newest first (k8s.io/apimachinery/pkg/util/remotecommand).
var (
	commandProtocols = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}
	forwardProtocols = []string{"portforward.k8s.io"}
)

// Handler serves what the API server asks a kubelet for: logs of containers,
// commands run in them, and connections to ports of pods; and what `fairway lab
// break` asks for.
func (k *Kubelet) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveStream(func(w http.ResponseWriter, req *http.Request, r *running, c *container, o *remotecommand.Options) {
		e := executor{r.sandbox, c}
		remotecommand.ServeExec(w, req, e, c.worker.first.Name, "", c.spec.Name, req.URL.Query()["command"], o, streamIdle, streamCreation, commandProtocols)
	}))
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveStream(func(w http.ResponseWriter, req *http.Request, r *running, c *container, o *remotecommand.Options) {
		remotecommand.ServeAttach(w, req, executor{r.sandbox, c}, c.worker.first.Name, "", c.spec.Name, o, streamIdle, streamCreation, commandProtocols)
	}))
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	k.handleFaults(mux)
	return mux
}

// refuse answers as the API server does, which passes the answer on.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{ // the client may be gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Message: err.Error(),
		Reason: map[int]metav1.StatusReason{http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusNotFound: metav1.StatusReasonNotFound}[code],
	})
}

// find finds a pod that runs.
func (k *Kubelet) find(namespace, name string) (*running, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if w.first.Namespace == namespace && w.first.Name == name {
			if r := w.running.Load(); r != nil {
				return r, nil
			}
			return nil, fmt.Errorf("pod %s has not started its containers, or has ended them", name)
		}
	}
	return nil, fmt.Errorf("pod %s does not run on a node of this lab", name)
}

func (k *Kubelet) container(req *http.Request) (*running, *container, error) {
	r, err := k.find(req.PathValue("namespace"), req.PathValue("pod"))
	if err != nil {
		return nil, nil, err
	}
	for _, c := range r.containers {
		if c.spec.Name == req.PathValue("container") {
			return r, c, nil
		}
	}
	return nil, nil, fmt.Errorf("container %s is not running", req.PathValue("container"))
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, req *http.Request) {
	options, err := parseLogOptions(req.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	_, c, err := k.container(req)
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	command, ok := c.process.(*command)
	if !ok { // an echo server says nothing
		return
	}
	if err := copyLog(req.Context(), w, command.log, options); err != nil {
		refuse(w, http.StatusBadRequest, err)
	}
}

type stream func(http.ResponseWriter, *http.Request, *running, *container, *remotecommand.Options)

func (k *Kubelet) serveStream(serve stream) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		r, c, err := k.container(req)
		if err != nil {
			refuse(w, http.StatusNotFound, err)
			return
		}
		options, err := remotecommand.NewOptions(req)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		serve(w, req, r, c, options)
	}
}
