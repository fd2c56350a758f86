package registry

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/client-go/tools/record"
)

// Acting says who acts on objects besides the controllers of the server. Kinds on
// which nobody acts are served with a warning for who creates them.
type Acting struct {
	// Pods are run: by the laboratory. `up` and `server` run none.
	Pods bool
	// Events is told of each new object on which nobody acts: who applies manifests by
	// a program sees no warnings. nil tells nobody.
	Events record.EventRecorder
}

// NothingActs is the reason of such Events.
const NothingActs = "NothingActs"

// eventOnCreate has an Event say of each new object of a store what its creator is warned of.
func (a Acting) eventOnCreate(store *genericregistry.Store, idle string) {
	if a.Events == nil || idle == "" {
		return
	}
	store.AfterCreate = func(obj runtime.Object, options *metav1.CreateOptions) {
		if options == nil || len(options.DryRun) == 0 {
			a.Events.Event(obj, corev1.EventTypeWarning, NothingActs, idle)
		}
	}
}

// pods is what who creates an object of a kind is told that takes somebody who
// runs pods.
func (a Acting) pods(kind string) string {
	if a.Pods {
		return ""
	}
	return "nothing here runs pods: this " + kind + " is stored, and no process starts. Run the processes yourself and say where they are: fairway expose NAME --port 80 --to ADDRESS:PORT"
}

// noActor is what who creates an object of a kind is told that nothing acts on
// anywhere.
func noActor(kind, instead string) string {
	return "nothing here acts on this " + kind + ": it is stored, " + instead
}
