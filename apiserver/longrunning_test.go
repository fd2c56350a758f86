package apiserver

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestRevokedWatches: a watch ends when the certificate or token that it was begun
// with ceases to hold. Others go on.
func TestRevokedWatches(t *testing.T) {
	s := start(t, testConfig(t))
	admin, ctx := client(t, s), within(t)
	kubectl(t, s, "", "create", "serviceaccount", "robot")
	kubectl(t, s, "", "create", "clusterrolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
	token := strings.TrimSpace(kubectl(t, s, "", "create", "token", "robot"))
	config := rest.AnonymousClientConfig(rest.CopyConfig(s.LoopbackConfig()))
	config.BearerToken = token
	robot, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]<-chan struct{}{
		"n1":      watchServices(t, clientOf(t, s, func() ([]byte, error) { return s.NodeKubeconfig("n1") })),
		"n2":      watchServices(t, clientOf(t, s, func() ([]byte, error) { return s.NodeKubeconfig("n2") })),
		"robot":   watchServices(t, robot),
		"admin":   watchServices(t, clientOf(t, s, func() ([]byte, error) { return s.Kubeconfig("boss", "system:masters") })),
		"library": watchServices(t, admin),
	}
	kubectl(t, s, "", "delete", "serviceaccount", "robot")
	revoked := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fairway-revoked-machines", Namespace: metav1.NamespaceSystem}}
	revoked.Data = map[string]string{"n1": time.Now().Add(time.Second).Format(time.RFC3339Nano)}
	if _, err := admin.CoreV1().ConfigMaps(revoked.Namespace).Create(ctx, revoked, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "robot"} {
		eventually(t, "the watch of "+name+" ends", func() bool {
			for _, l := range s.longRunning {
				l.recheck(ctx)
			}
			select {
			case <-ended[name]:
				return true
			default:
				return false
			}
		})
	}
	for _, name := range []string{"n2", "admin", "library"} {
		select {
		case <-ended[name]:
			t.Errorf("the watch of %s has ended", name)
		default:
		}
	}
}

// watchServices watches until the server ends it, and closes the channel then.
func watchServices(t *testing.T, c *kubernetes.Clientset) <-chan struct{} {
	t.Helper()
	var ended chan struct{}
	eventually(t, "a watch begins", func() bool {
		w, err := c.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			return false
		}
		t.Cleanup(w.Stop)
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			for range w.ResultChan() {
			}
		}()
		return true
	})
	return ended
}
