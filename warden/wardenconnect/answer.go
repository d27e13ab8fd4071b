// SPDX-License-Identifier: Apache-2.0

// Errors of this project as connect errors.

package wardenconnect

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
)

// retryAfter is the client's wait if the limiter has no estimate.
const retryAfter = time.Second

// Answer returns a wardenhttp.Config.Answer that answers rejected RPCs in their own protocol, and leaves other requests to
// the middleware. A unary Connect call must identify itself (Connect-Protocol-Version, or connect=v1 in the query of a GET,
// as generated clients do), because any JSON POST could be one. The options are those of the handlers, as far as
// connect.NewErrorWriter uses them.
func Answer(options ...connect.HandlerOption) func(w http.ResponseWriter, r *http.Request, err error) bool {
	writer := connect.NewErrorWriter(append([]connect.HandlerOption{connect.WithRequireConnectProtocolHeader()}, options...)...)
	return func(w http.ResponseWriter, r *http.Request, err error) bool {
		if !writer.IsSupported(r) {
			return false
		}
		status, ours := rpcstatus.Of(nil, err)
		if !ours {
			status = rpcstatus.Invalid()
		}
		if status.RequestID == "" {
			status.RequestID = w.Header().Get(requestid.HTTP) // as the middleware knows it
		}
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
			status = status.OfStream()
		}
		status.Scope = w.Header().Get(rpcstatus.ScopeHTTP) // as the middleware knows it
		w.Header()[rpcstatus.RejectedHTTP] = []string{status.Reason}
		_ = writer.Write(w, r, rejection(status, err, true)) // on failure the client is gone
		return true
	}
}

// Convert returns err as a *connect.Error if it is, or wraps, an error of this project and no *connect.Error; other errors are
// returned unchanged. Use it in handlers that acquire slots themselves.
func Convert(err error) error {
	var already *connect.Error
	if errors.As(err, &already) {
		return err
	}
	status, ours := rpcstatus.Of(nil, err)
	if !ours {
		return err
	}
	return rejection(status, err, false)
}

// rejected has the public text of a rejection for the wire; errors.As finds the cause on this side.
type rejected struct {
	reason string
	cause  error
}

func (e *rejected) Error() string { return "warden: " + e.reason }
func (e *rejected) Unwrap() error { return e.cause }

// rejection returns cause as a connect error. unseen: no handler has seen the call.
func rejection(s rpcstatus.Status, cause error, unseen bool) *connect.Error {
	e := connect.NewError(connect.Code(s.Code), &rejected{s.Reason, cause})
	detail(e, &errdetails.ErrorInfo{Reason: strings.ToUpper(s.Reason), Domain: rpcstatus.Domain, Metadata: s.Metadata(unseen)})
	if s.Again {
		after := s.Delay(retryAfter)
		detail(e, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
		e.Meta().Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	return e
}

func detail(e *connect.Error, m proto.Message) {
	if d, err := connect.NewErrorDetail(m); err == nil { // it fails for messages that cannot be marshaled: these can
		e.AddDetail(d)
	}
}
