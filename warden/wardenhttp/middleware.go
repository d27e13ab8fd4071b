// The server's side: a request is given its place or an answer that says why not, and holds the place until all of it
// has ended.

package wardenhttp

import (
	"net/http"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
)

// Handler returns a handler that calls next for the requests that are given a place and answers the others itself, as
// [WriteError] does. A nil next is [http.DefaultServeMux], as it is to [http.ListenAndServe].
//
// A request waits for its place as [warden.Warden.Acquire] says; its body has not been read by then. It holds the place
// until next is done, whichever way: a panic or runtime.Goexit passes through with its stack whole. If next hijacks the
// connection, the request holds its place until next is done and the connection that Hijack returned has been closed;
// see [http.Hijacker]. How long it took is not counted as the service's time if the connection was hijacked, or if the
// request's context was canceled, which is what net/http does when the client goes away.
//
// What the ResponseWriter that next gets can do, and a connection that it hijacks, says [inflight.Serve].
//
// A request that is given its place at once costs one small allocation, two where there is something to hijack, besides
// those of Config's functions. One that the warden refuses costs three: what is known about it, the values of the headers and
// the body.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		next = http.DefaultServeMux
	}
	return &handler{m, next}
}

type handler struct {
	*Middleware
	next http.Handler
}

// ServeHTTP calls the next handler or answers.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Exempt != nil && h.cfg.Exempt(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	place, err := h.acquire(r)
	if err != nil {
		if r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > mostUnread) {
			w.Header().Set("Connection", "close")
		}
		if h.cfg.Answer != nil && h.cfg.Answer(w, r, err) {
			return
		}
		answers := h.answers
		answers.unseen = true
		if !answers.answer(w, place.asked, err) {
			answers.write(w, internalError(), err)
		}
		return
	}
	if in := place.ctx; in != r.Context() {
		outer := r
		r = r.WithContext(in)
		defer func() { outer.MultipartForm = r.MultipartForm }() // the server removes its files, but knows only the outer request
	}
	inflight.Serve(place, h.next, w, r)
}

// mostUnread is the longest body for which a refused request's connection is kept. Before net/http's server answers a
// request with an unread body over HTTP/1, it reads the rest, up to 256 KiB, unless the connection will be closed: a
// refusal would come only after an upload. (Over HTTP/2 it does not, and to ask for the end of the connection would end
// it for all requests in it.)
const mostUnread = 64 << 10

// acquire classifies the request and asks for its place.
func (m *Middleware) acquire(r *http.Request) (place, error) {
	if m.cfg.Task == nil {
		return place{}, notMade("Middleware", "wardenhttp.New")
	}
	return m.capacity.acquire(r, m.cfg.classify(r))
}
