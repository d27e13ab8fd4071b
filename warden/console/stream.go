// SPDX-License-Identifier: Apache-2.0

// The stream: server-sent events, each written by the goroutine of its own request.
//
// There is no fan-out: a stream reads the state itself when its interval has passed and its last event is written. So no slow
// client can fill a queue, and nothing runs for a client that has disconnected.

package console

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// openStream reserves a stream; code says why there is none.
func (c *Console) openStream() (code, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return "closed", "The console was closed: the server is shutting down."
	case c.streams == c.maxStreams:
		return "too_many_streams", "All " + strconv.Itoa(c.maxStreams) + " streams are taken; state.json has the same."
	}
	c.streams++
	return "", ""
}

func (c *Console) closeStream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams--
}

// Close ends all streams, without waiting for them, and rejects new ones; the page and state.json are still served.
// http.Server.Shutdown waits for streams, which never end by themselves: register Close with
// server.RegisterOnShutdown(console.Close). Closing twice does nothing.
func (c *Console) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.done)
	}
}

// stream writes the state now and in every interval, until the client disconnects, is too slow, or Close is called.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	at, ok := historyOf(w, r)
	if !ok {
		return
	}
	if code, detail := c.openStream(); code != "" {
		w.Header().Set("Retry-After", "5")
		writeProblem(w, http.StatusServiceUnavailable, code, detail)
		return
	}
	defer c.closeStream()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would collect events
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // the write deadline stays on the connection: no other request may inherit it
	}
	h.Set("Vary", "Accept-Encoding")
	out, flush := io.Writer(w), func() error { return nil }
	if takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
		zip := zippers.Get().(*gzip.Writer)
		defer func() {
			_ = zip.Close() // the end that a client checks
			zippers.Put(zip)
		}()
		zip.Reset(w)
		out, flush = zip, zip.Flush
	}
	rc := http.NewResponseController(w)
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	event := []byte("retry: 2000\n\n")
	for {
		state, err := json.Marshal(c.state(at))
		if err != nil {
			return
		}
		// JSON has no line breaks of its own, so one line of data holds it.
		event = append(append(append(event, "event: state\ndata: "...), state...), "\n\n"...)
		// Where deadlines are not supported, a reader that does not read holds this goroutine and one of the streams until it
		// goes.
		_ = rc.SetWriteDeadline(time.Now().Add(c.writeTimeout))
		if _, err := out.Write(event); err != nil {
			return
		}
		if err := flush(); err != nil {
			return
		}
		if err := rc.Flush(); err != nil {
			return
		}
		_ = rc.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end the stream while there is nothing to write
		event = event[:0]
		select {
		case <-r.Context().Done():
			return
		case <-c.done:
			return
		case <-ticker.C:
		}
	}
}
