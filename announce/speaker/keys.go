package speaker

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/kube"
)

const (
	// keysAgain is how often the Secret with the keys is read: a node may not watch Secrets.
	keysAgain = 10 * time.Second
	// keysPause is how soon it is read again because another node signs with another key.
	keysPause = time.Second
	// formerFor is how long a key is still good that the Secret has no more: others have yet to
	// read the new one.
	formerFor = 5 * time.Second
	// reasonForeign is the reason of Events about frames that are signed with another key.
	reasonForeign = "foreignAdverts"
)

// keys are the keys of adverts as they were read last.
type keys struct {
	now, former []byte
	formerUntil time.Time
	said        map[string]bool // MACs with foreign signatures that were told of
	refused     int             // times in a row that the API refused this machine's credential
}

// readKeys reads the Secret, and reports whether there is a key to sign with.
func (n *Speaker) readKeys(ctx context.Context, k *keys) (ok bool, err error) {
	secret, err := n.client.CoreV1().Secrets(n.namespace).Get(ctx, announce.KeySecret, metav1.GetOptions{})
	if err == nil && len(secret.Data[announce.KeyField]) == 0 {
		err = fmt.Errorf("it has no data %q", announce.KeyField)
	}
	n.noteRefusal(k, apierrors.IsUnauthorized(err))
	now := time.Now()
	if err == nil {
		for _, node := range n.cluster.Keys.SetOut(strings.Fields(string(secret.Data[announce.OutField]))) {
			n.cluster.Detector.Left(now, node)
		}
		key, previous := secret.Data[announce.KeyField], secret.Data[announce.PreviousKeyField]
		if k.now != nil && string(k.now) != string(key) {
			k.former, k.formerUntil = k.now, now.Add(formerFor)
			n.log.Info("adverts are signed with another key now", "secret", n.namespace+"/"+announce.KeySecret)
		}
		k.now = key
		if len(previous) > 0 {
			k.former, k.formerUntil = previous, now.Add(2*keysAgain)
		}
	}
	if k.now == nil {
		return false, err
	}
	list := [][]byte{k.now}
	if now.Before(k.formerUntil) {
		list = append(list, k.former)
	}
	if n.cluster.Keys.Set(list...) {
		n.cluster.Foreign.Forget()
	}
	return true, err
}

// mostRefused is how often in a row the API refuses a credential that is good no more.
const mostRefused = 3

// noteRefusal has this machine announce nothing while its credential isn't good any more: it was
// revoked, or has expired.
func (n *Speaker) noteRefusal(k *keys, refused bool) {
	before := k.refused >= mostRefused
	k.refused++
	if !refused {
		k.refused = 0
	}
	if out := k.refused >= mostRefused; out != before {
		n.mu.Lock()
		n.refused = out
		n.reconsider()
		n.mu.Unlock()
	}
}

// awaitKeys returns once there is a key.
func (n *Speaker) awaitKeys(ctx context.Context, k *keys) bool {
	for first := true; ; first = false {
		ok, err := n.readKeys(ctx, k)
		if ok {
			return true
		}
		if first {
			n.log.Info("waiting for the key that nodes sign their adverts with", "secret", n.namespace+"/"+announce.KeySecret, "reason", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}

// keepKeys reads the keys again until ctx is done: now and then, and when another node signs
// with a key that this one doesn't know.
func (n *Speaker) keepKeys(ctx context.Context, k *keys) {
	complaint := ""
	for {
		pause := keysAgain
		if k.refused > 0 {
			pause = keysPause
		}
		if left := time.Until(k.formerUntil); left > 0 {
			pause = min(pause, left)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-n.keysDue:
		}
		_, err := n.readKeys(ctx, k)
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && text != complaint {
			complaint = text
			n.log.Warn("the key that nodes sign their adverts with can't be read again; the one read before is used", "secret", n.namespace+"/"+announce.KeySecret, "error", err)
		}
		if err == nil {
			complaint = ""
		}
		select { // others may have to read it, too
		case <-ctx.Done():
			return
		case <-time.After(keysPause):
		}
		n.tellForeign(k)
	}
}

// watchKeys has the keys read again as soon as the Secret changes, where this machine may watch it.
func (n *Speaker) watchKeys(ctx context.Context) {
	sink := kube.Sink[*corev1.Secret]{
		Set:    func(*corev1.Secret) { signal(n.keysDue) },
		Delete: func(types.NamespacedName) { signal(n.keysDue) },
		Synced: func() {},
	}
	kube.Watch(ctx, kube.Source{
		Client: n.client.CoreV1().RESTClient(), Resource: "secrets", Namespace: n.namespace,
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, announce.KeySecret),
	}, sink)
}

// tellForeign tells once of each machine that sends adverts with another key.
func (n *Speaker) tellForeign(k *keys) {
	senders := n.cluster.Foreign.Senders(time.Now())
	var fresh []string
	for _, mac := range senders {
		if !k.said[mac] {
			fresh = append(fresh, mac)
		}
	}
	k.said = map[string]bool{}
	for _, mac := range senders {
		k.said[mac] = true
	}
	if len(fresh) == 0 {
		return
	}
	text := foreignText(fresh)
	n.log.Warn("another cluster announces on this link, or an agent has another key", "reason", text)
	n.mu.Lock()
	events := n.events
	n.mu.Unlock()
	events.ReportNode(reasonForeign, text)
	signal(n.changed)
}

func foreignText(macs []string) string {
	return "adverts that aren't signed with this cluster's key come from " + strings.Join(macs, ", ") +
		": of another cluster, or of a node whose agent can't read Secret " + announce.KeySecret
}
