package registry

// Acting says who acts on objects besides the controllers of the server. Kinds on
// which nobody acts are served with a warning for who creates them.
type Acting struct {
	// Pods are run: by the laboratory. `up` and `server` run none.
	Pods bool
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
