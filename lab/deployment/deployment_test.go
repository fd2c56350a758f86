package deployment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/lab/replicaset"
)

func deployment(replicas int32, surge, unavailable string) *appsv1.Deployment {
	s, u := intstr.Parse(surge), intstr.Parse(unavailable)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: "uid", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "hello"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "hello"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u},
			},
		},
	}
}

// cluster is a fake API with the controller, and a stand-in for kubelets: a pod
// is ready a second after its creation, and gone three after its deletion.
type fakeCluster struct {
	*testing.T
	client *fake.Clientset
	broken bool // pods don't become ready

	mu           sync.Mutex
	most, fewest int // pods alive and available at any time
}

func start(t *testing.T, d *appsv1.Deployment) *fakeCluster {
	c := &fakeCluster{T: t, client: fake.NewClientset(d)}
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.UID = uuid.NewUUID() // the fake API gives none
		return false, nil, nil
	})
	c.client.PrependReactor("create", "replicasets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		set := action.(clienttesting.CreateAction).GetObject().(*appsv1.ReplicaSet)
		set.UID, set.Generation = uuid.NewUUID(), 1
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(c.client, 0)
	controller, err := New(c.client, factory, &record.FakeRecorder{})
	if err != nil {
		t.Fatal(err)
	}
	sets, err := replicaset.New(c.client, factory, &record.FakeRecorder{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx) })
	running.Go(func() { sets.Run(ctx) })
	running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) { // the bubble's time
			c.kubelet(ctx)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
	return c
}

func (c *fakeCluster) kubelet(ctx context.Context) {
	pods := c.pods()
	alive, available := 0, 0
	for _, p := range pods {
		alive++
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }) {
			available++
			continue
		}
		if !c.broken && p.Annotations["seen"] != "" {
			p.Spec.NodeName, p.Status.Phase = "node1", corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		}
		p.Annotations = map[string]string{"seen": "yes"}
		if _, err := c.client.CoreV1().Pods("default").Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			c.Errorf("update pod: %v", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.fewest = max(c.most, alive), min(c.fewest, available)
}

func (c *fakeCluster) pods() []*corev1.Pod {
	list, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods
}

// change edits the Deployment as the API server would, lets it settle, and
// returns the result with the most pods and the fewest available ones meanwhile.
func (c *fakeCluster) change(edit func(*appsv1.Deployment)) (d *appsv1.Deployment, most, fewest int) {
	c.Helper()
	d = c.get()
	edit(d)
	d.Generation++
	c.mu.Lock()
	c.most, c.fewest = 0, 1000
	c.mu.Unlock()
	if _, err := c.client.AppsV1().Deployments("default").Update(c.Context(), d, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(), c.most, c.fewest
}

func (c *fakeCluster) get() *appsv1.Deployment {
	c.Helper()
	d, err := c.client.AppsV1().Deployments("default").Get(c.Context(), "hello", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

// settle lets a minute of the bubble's time pass, with all that comes of it.
func settle() {
	time.Sleep(time.Minute) // the bubble's time
	synctest.Wait()
}

// counts are the numbers that `kubectl rollout status` goes by.
func counts(d *appsv1.Deployment) string {
	s := d.Status
	return fmt.Sprintf("generation %d of %d: %d pods, %d updated, %d ready, %d available, %d unavailable",
		s.ObservedGeneration, d.Generation, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas)
}

func (c *fakeCluster) want(d *appsv1.Deployment, wanted string) {
	c.Helper()
	if got := counts(d); got != wanted {
		c.Errorf("status: %s; want %s", got, wanted)
	}
}

func TestRollingUpdate(t *testing.T) {
	for _, c := range []struct {
		surge, unavailable string
		most, fewest       int
	}{
		{"1", "0", 11, 10}, {"0", "1", 10, 9}, {"25%", "25%", 13, 8}, {"100%", "0", 20, 10}, {"0", "100%", 10, 0}, {"0", "0", 10, 9},
	} {
		t.Run(c.surge+","+c.unavailable, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, deployment(10, c.surge, c.unavailable))
				settle()
				k.want(k.get(), "generation 1 of 1: 10 pods, 10 updated, 10 ready, 10 available, 0 unavailable")
				d, most, fewest := k.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" })
				k.want(d, "generation 2 of 2: 10 pods, 10 updated, 10 ready, 10 available, 0 unavailable")
				if most > c.most || fewest < c.fewest {
					t.Errorf("at most %d pods, at least %d available; want %d and %d", most, fewest, c.most, c.fewest)
				}
				for _, p := range k.pods() {
					if p.Spec.Containers[0].Image != "v2" {
						t.Errorf("pod %s is of %s", p.Name, p.Spec.Containers[0].Image)
					}
				}
			})
		})
	}
}

func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, deployment(3, "25%", "25%"))
		settle()
		for i, n := range []int32{7, 2, 0, 1} {
			d, _, _ := k.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
			k.want(d, fmt.Sprintf("generation %d of %[1]d: %d pods, %[2]d updated, %[2]d ready, %[2]d available, 0 unavailable", i+2, n))
		}
	})
}

func TestPodsAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, deployment(3, "25%", "25%"))
		settle()
		pods := k.pods()
		if err := k.client.CoreV1().Pods("default").Delete(t.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		failed := pods[1]
		failed.Status.Phase = corev1.PodFailed
		if _, err := k.client.CoreV1().Pods("default").UpdateStatus(t.Context(), failed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		k.want(k.get(), "generation 1 of 1: 3 pods, 3 updated, 3 ready, 3 available, 0 unavailable")
		if len(k.pods()) != 4 { // the failed one stays to be looked at
			t.Errorf("%d pods, want 4", len(k.pods()))
		}
	})
}

func TestBrokenUpdateStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		initial := deployment(4, "1", "1")
		deadline := int32(30)
		initial.Spec.ProgressDeadlineSeconds = &deadline
		k := start(t, initial)
		settle()
		k.broken = true
		d, _, fewest := k.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "broken" })
		k.want(d, "generation 2 of 2: 5 pods, 2 updated, 3 ready, 3 available, 2 unavailable")
		if fewest != 3 {
			t.Errorf("%d pods stayed available, want 3", fewest)
		}
		if c := condition(&d.Status, appsv1.DeploymentProgressing); c == nil || c.Reason != "ProgressDeadlineExceeded" {
			t.Errorf("condition Progressing: %v", c)
		}
		k.broken = false
		d, _, _ = k.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v1" })
		k.want(d, "generation 3 of 3: 4 pods, 4 updated, 4 ready, 4 available, 0 unavailable")
		if c := condition(&d.Status, appsv1.DeploymentProgressing); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("condition Progressing: %v", c)
		}
	})
}

func TestPausedAndRecreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, deployment(3, "25%", "25%"))
		settle()
		five := int32(5)
		d, _, _ := k.change(func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Spec.Replicas = true, &five
			d.Spec.Template.Spec.Containers[0].Image = "v2"
		})
		k.want(d, "generation 2 of 2: 5 pods, 0 updated, 5 ready, 5 available, 0 unavailable")
		d, most, _ := k.change(func(d *appsv1.Deployment) {
			d.Spec.Paused = false
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		})
		k.want(d, "generation 3 of 3: 5 pods, 5 updated, 5 ready, 5 available, 0 unavailable")
		if most > 5 {
			t.Errorf("%d pods at a time", most)
		}
	})
}

// TestHistory: each template is a ReplicaSet with its revision; one that comes
// back, as after rollout undo, is the newest again, and what the limit exceeds is
// forgotten.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		initial := deployment(2, "25%", "25%")
		two := int32(2)
		initial.Spec.RevisionHistoryLimit = &two
		k := start(t, initial)
		settle()
		for _, image := range []string{"v2", "v1", "v3", "v4"} {
			k.change(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = image
				d.Annotations["kubernetes.io/change-cause"] = "to " + image
			})
		}
		list, err := k.client.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, set := range list.Items {
			got = append(got, fmt.Sprintf("%s of %s (was %s): %s, %d", set.Annotations[revisionAnnotation], set.Spec.Template.Spec.Containers[0].Image,
				set.Annotations[historyAnnotation], set.Annotations["kubernetes.io/change-cause"], *set.Spec.Replicas))
			for _, labels := range []map[string]string{set.Labels, set.Spec.Template.Labels, set.Spec.Selector.MatchLabels} {
				if labels["pod-template-hash"] == "" {
					t.Errorf("%s has no hash: %v", set.Name, labels)
				}
			}
		}
		slices.Sort(got)
		want := []string{"3 of v1 (was 1): to v1, 0", "4 of v3 (was ): to v3, 0", "5 of v4 (was ): to v4, 2"}
		if !slices.Equal(got, want) {
			t.Errorf("history:\n%q\nwant\n%q", got, want)
		}
		if at := k.get().Annotations[revisionAnnotation]; at != "5" {
			t.Errorf("the Deployment is at revision %s", at)
		}
	})
}

// TestScaledInTheMiddle: both ReplicaSets of a rollout that stands still grow in
// proportion.
func TestScaledInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, deployment(10, "5", "0"))
		settle()
		k.broken = true
		k.change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "broken" })
		twenty := int32(20)
		k.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &twenty })
		count := map[string]int{}
		for _, p := range k.pods() {
			count[p.Spec.Containers[0].Image]++
		}
		// (20 + 5) / (10 + 5) of 10 and of 5
		if count["v1"] != 17 || count["broken"] != 8 {
			t.Errorf("pods by image: %v; want 17 of v1, 8 broken", count)
		}
	})
}
