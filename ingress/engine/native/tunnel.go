package native

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
)

// tunnel goes on with a WebSocket as bytes.
func (x *exchange) tunnel(ctx context.Context, w http.ResponseWriter, response *http.Response) {
	backend, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		x.answer(w, http.StatusBadGateway, "the endpoint's connection can't go on as bytes")
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		x.answer(w, http.StatusInternalServerError, "take the client's connection: "+err.Error())
		return
	}
	x.counter.status = response.StatusCode
	end := func() { _, _ = client.Close(), backend.Close() } // nothing more is to come
	defer end()
	defer context.AfterFunc(ctx, end)()
	response.Header["Connection"], response.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	writeHead(buffered.Writer, response.StatusCode, response.Header)
	if buffered.Flush() != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pour(backend, rest(buffered.Reader, client), end) })
	pour(client, backend, end)
	both.Wait()
}

// rest is what comes from a connection of which some has been read already.
func rest(r *bufio.Reader, c io.Reader) io.Reader {
	read, _ := r.Peek(r.Buffered()) // which is there
	return io.MultiReader(bytes.NewReader(read), c)
}

// pour copies one direction and its end.
func pour(to io.WriteCloser, from io.Reader, end func()) {
	if _, err := io.Copy(to, from); err != nil || closeWrite(to) != nil {
		end()
	}
}
