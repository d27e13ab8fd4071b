// The server's side: a request is given its place or an answer that says why not, and holds the place until all of it
// has ended.

package wardenhttp

import (
	"net/http"
	"time"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden/internal/place"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
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
// The context of the request that next gets ends with its deadline: the earliest of Config.Timeout's, the Task's and the client's
// (see Config.Trusted). It knows the priority ([warden.PriorityFrom]), which goes on with the requests that next sends through a
// [Transport], and that the request has its place: to ask the same warden once more from inside is a [*warden.ReentryError]. A
// middleware around another one of the same warden, or the same compartment, counts once: the inner one calls its next.
//
// A client that keeps next waiting is cut off, as [Config].Grace says. A request whose context's deadline passes while next runs is answered
// 504 if next returns and has written nothing; with [Config].Buffered at once, whatever next does.
//
// The ResponseWriter that next gets can do what w can, and so can a connection that it hijacks; the deprecated http.CloseNotifier is
// not passed on. With Buffered it can only be written to.
//
// A request that is given its place at once costs five allocations: its id, what is known of it, its context, the copy that has that, and what watches
// its client; one more where there is something to hijack, and some for a deadline, besides those of Config's functions. What it reads or writes costs a timer more. One that
// the warden refuses costs four: its id, what is known about it, the values of the headers and the body.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		next = http.DefaultServeMux
	}
	if m == nil {
		m = new(Middleware)
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
	is := h.capacity.claim(r)
	if is.Holds(r.Context()) { // mounted twice: the outer one has asked
		h.next.ServeHTTP(w, r)
		return
	}
	got, err := h.acquire(w.Header(), r, &is)
	if err != nil {
		h.refuse(w, r, &is, err)
		return
	}
	e := &exchange{h: h, place: held{got}, asked: r}
	inner := e.request()
	if h.cfg.Buffered {
		e.buffer(w, inner)
		return
	}
	// The server removes the form's files, and logs in front tell the pattern, but they know only the outer request.
	defer func() { r.MultipartForm, r.Pattern = inner.MultipartForm, inner.Pattern }()
	inflight.Serve(e, e, w, inner)
}

// refuse answers r, which asked for is. Before net/http's server answers over HTTP/1 a request with an unread body, it reads
// the rest, up to 256 KiB, unless the connection will be closed: a refusal would come only after an upload, or never. So it is given a
// moment for a short body, which keeps the connection, and none for others. (Over HTTP/2 it does not read, and to ask for the
// end of the connection would end it for all requests in it.)
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, is *place.Claim, err error) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(forUnread)) // or the server's ReadTimeout ends it
		if r.ContentLength < 0 || r.ContentLength > mostUnread {
			w.Header().Set("Connection", "close")
		}
	}
	answers := h.answers
	answers.unseen, answers.requestID = true, is.Task.ID
	if h.cfg.Answer != nil {
		if answers.requestID != "" {
			w.Header()[requestid.HTTP] = []string{answers.requestID}
		}
		if h.cfg.Answer(w, r, err) {
			return
		}
	}
	if !answers.answer(w, is.Compartment, err) {
		answers.write(w, mistake(rpcstatus.Invalid().Reason), err)
	}
}

const (
	mostUnread = 64 << 10               // the longest body for which a refused request's connection is kept
	forUnread  = 500 * time.Millisecond // how long it is waited for the rest of one
)

// acquire classifies the request, which is to be answered with these headers, and asks for its place.
func (m *Middleware) acquire(answer http.Header, r *http.Request, is *place.Claim) (place.Place, error) {
	if m.cfg.Task == nil {
		return place.Place{}, notMade("Middleware", "wardenhttp.New")
	}
	m.cfg.classify(answer, r, is)
	return is.Acquire(r.Context())
}
