package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/kubelet"
)

// BreakPod has a pod, as NAME or NAMESPACE/NAME, suffer a fault. It replaces the
// one that it has.
func BreakPod(ctx context.Context, lab, pod string, kind fault.Kind) error {
	return askKubelet(ctx, lab, http.MethodPut, podFaults(pod), kind, nil)
}

// BreakNode has a node suffer a fault. It replaces the one that it has.
func BreakNode(ctx context.Context, lab, node string, kind fault.Kind) error {
	return askKubelet(ctx, lab, http.MethodPut, "/faults/nodes/"+url.PathEscape(node), kind, nil)
}

// MendPod, MendNode and MendAll undo faults; without one they do nothing.
func MendPod(ctx context.Context, lab, pod string) error {
	return askKubelet(ctx, lab, http.MethodDelete, podFaults(pod), "", nil)
}

// MendNode undoes a node's fault.
func MendNode(ctx context.Context, lab, node string) error {
	return askKubelet(ctx, lab, http.MethodDelete, "/faults/nodes/"+url.PathEscape(node), "", nil)
}

// MendAll undoes all faults of a lab.
func MendAll(ctx context.Context, lab string) error {
	return askKubelet(ctx, lab, http.MethodDelete, "/faults", "", nil)
}

// faultsTimeout is how long a lab may take to name its faults: one that is stopped
// never does.
const faultsTimeout = time.Second

// Faults lists what is wrong in a lab.
func Faults(ctx context.Context, lab string) ([]kubelet.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, faultsTimeout)
	defer cancel()
	var list []kubelet.Fault
	return list, askKubelet(ctx, lab, http.MethodGet, "/faults", "", &list)
}

// podFaults is the path of a pod's fault.
func podFaults(pod string) string {
	namespace, name, qualified := strings.Cut(strings.TrimPrefix(pod, "pod/"), "/")
	if !qualified {
		namespace, name = metav1.NamespaceDefault, namespace
	}
	return "/faults/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// askKubelet sends a request to the lab's kubelet, and decodes its answer into
// answer, if that is not nil.
func askKubelet(ctx context.Context, lab, method, path string, kind fault.Kind, answer any) (err error) {
	state, err := Load(lab)
	if err != nil {
		return err
	}
	if !state.Supervisor.alive() {
		return fmt.Errorf("lab %q has crashed: fairway lab down --name %s", lab, lab)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", kubeletSocket(lab))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://kubelet"+path+"?kind="+url.QueryEscape(string(kind)), nil)
	if err != nil {
		return fmt.Errorf("ask the kubelet of lab %s: %w", lab, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the kubelet of lab %s: %w", lab, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || status.Message == "" {
			return fmt.Errorf("ask the kubelet of lab %s: %s", lab, resp.Status)
		}
		return errors.New(status.Message)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("read the kubelet's answer: %w", err)
	}
	return nil
}
