package apiserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestBytesOfUsers: small patches of a large object, and Events, are counted by what they
// store. Who has stored too much is refused and may still delete, other users go on, and
// there is room again later.
func TestBytesOfUsers(t *testing.T) {
	config := testConfig(t)
	config.TokenFile = filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(config.TokenFile, []byte("eve-token,eve,1,people\njane-token,jane,2,people\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, config)
	s.spent.events, s.spent.others = budget{100 << 10, 100 << 10}, budget{2 << 20, 1 << 20}
	as := func(name string) kubernetes.Interface {
		c := rest.CopyConfig(s.LoopbackConfig())
		c.BearerToken, c.QPS = name+"-token", -1
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	kubectl(t, s, "", "create", "clusterrolebinding", "people", "--clusterrole=cluster-admin", "--group=people")
	ctx, eve, jane := within(t), as("eve"), as("jane")
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"a": strings.Repeat("x", 300<<10)}}
	eventually(t, "that the role counts", func() bool {
		_, err := eve.CoreV1().ConfigMaps("default").Create(ctx, large, metav1.CreateOptions{})
		return err == nil
	})
	refused := func(write func() error) error {
		t.Helper()
		for range 500 {
			err := write()
			if apierrors.IsTooManyRequests(err) {
				return err
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("no write is refused")
		return nil
	}
	n := 0
	patch := func() error {
		n++
		_, err := eve.CoreV1().ConfigMaps("default").Patch(ctx, "large", types.MergePatchType, []byte(`{"data":{"n":"`+strings.Repeat("n", n)+`"}}`), metav1.PatchOptions{})
		return err
	}
	err := refused(patch)
	if n > 10 || !strings.Contains(err.Error(), "user eve has written too much: 2 MiB of objects at once and 1 MiB an hour") {
		t.Errorf("after %d patches: %v", n, err)
	}
	event := func() error {
		_, err := eve.CoreV1().Events("default").Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "e-", Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "x"}, Message: strings.Repeat("m", 900),
		}, metav1.CreateOptions{})
		return err
	}
	if err := refused(event); !strings.Contains(err.Error(), "of Events at once") {
		t.Error(err)
	}
	if _, err := jane.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := eve.CoreV1().ConfigMaps("default").Delete(ctx, "large", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting: %v", err)
	}
	later := time.Now().Add(time.Hour)
	s.spent.mu.Lock()
	s.spent.now = func() time.Time { return later }
	s.spent.mu.Unlock()
	if err := event(); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

// TestPayers: ServiceAccounts of a namespace share what they may write, and what is known
// of users is forgotten only if nothing was spent.
func TestPayers(t *testing.T) {
	s := newSpending(budget{100, 100}, budget{100, 100})
	now := time.Now()
	s.now = func() time.Time { return now }
	refuses := func(name string) bool {
		req, err := http.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{Resource: "configmaps"}), http.MethodPost, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.refuses(&user.DefaultInfo{Name: name}, req) != ""
	}
	s.charge(request.WithUser(t.Context(), &user.DefaultInfo{Name: "system:serviceaccount:ns:one"}), corev1.Resource("configmaps"), 101)
	for range mostUsers + 10 {
		refuses(time.Now().String())
	}
	if len(s.accounts) > mostUsers {
		t.Errorf("%d accounts are remembered", len(s.accounts))
	}
	if !refuses("system:serviceaccount:ns:two") || refuses("system:serviceaccount:other:one") || refuses("jane") {
		t.Error("accounts of one namespace must share, and others not")
	}
	now = now.Add(time.Hour)
	if refuses("system:serviceaccount:ns:one") {
		t.Error("an hour later there must be room")
	}
}

// TestManySpenders: however many users write, so many accounts are kept, and those who
// have spent the most are among them.
func TestManySpenders(t *testing.T) {
	s := newSpending(budget{1000, 1}, budget{1000, 1})
	now := time.Now()
	s.now = func() time.Time { return now }
	charge := func(name string, bytes int) {
		who := &user.DefaultInfo{Name: name}
		s.charge(request.WithUser(t.Context(), who), schema.GroupResource{Resource: "services"}, bytes)
	}
	charge("eve", 2000)
	for i := range 2*mostUsers + 10 {
		charge(fmt.Sprintf("user-%d", i), 1+i%500)
		if len(s.accounts) > mostUsers {
			t.Fatalf("%d accounts are kept, at most %d should be", len(s.accounts), mostUsers)
		}
	}
	if a := s.accounts[accountKey{"eve", false}]; a == nil || a.left > 0 {
		t.Errorf("what the user who has spent the most has left was forgotten: %+v", a)
	}
}
