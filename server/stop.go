package server

import (
	"context"
	"fmt"
	"io"
	"time"
)

const (
	// controllersTime is how long the controllers of a server that ends may take, before
	// the API that they write by ends too. They give their lease back, so that another
	// server's go on at once.
	controllersTime = 300 * time.Millisecond
	// stopTime is how long a server may take to end. It usually takes 1.2 seconds, of
	// which one is for clients to see that their connections close.
	stopTime = 1700 * time.Millisecond
)

// stopAfter stops a server once ctx is done and its controllers have ended.
func stopAfter(ctx context.Context, controllers <-chan struct{}, stop func()) {
	<-ctx.Done()
	select {
	case <-controllers:
	case <-time.After(controllersTime):
	}
	stop()
}

// endInTime returns what wait does, or nil if that takes longer than stopTime from
// when the server was asked to end. What is left undone then, the next start and the
// other servers find as after a crash: nothing that was written is lost.
func endInTime(asked context.Context, out io.Writer, wait func() error) error {
	ended, late := make(chan error, 1), make(chan struct{})
	go func() { ended <- wait() }()
	defer context.AfterFunc(asked, func() {
		time.Sleep(stopTime)
		close(late)
	})()
	select {
	case err := <-ended:
		return err
	case <-late:
		fmt.Fprintf(out, "The store took longer than %s to close: ended without waiting for it. What was written is kept\n", stopTime)
		return nil
	}
}
