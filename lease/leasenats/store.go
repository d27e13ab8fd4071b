// SPDX-License-Identifier: Apache-2.0

package leasenats

// A store keeps each record of a ledger under a key, whose revision is the record's version.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
)

// StoreConfig configures OpenStore.
type StoreConfig struct {
	// Conn is the connection to use. Required. The caller owns and closes it.
	Conn *nats.Conn
	// Bucket is the key-value bucket: letters, digits, - and _, at most 64. Required. OpenStore creates it if it does not exist.
	Bucket string
	// Name is the ledger's name in the bucket: letters, digits, - and _, at most 64, not beginning with source-. "":
	// "ledger". Only keys that begin with the name and a point are read, and <Name>/listed.
	Name string
	// Replicas is how many servers keep the bucket: 0 (1) to 5. An existing bucket must have at least that many.
	Replicas int
	// Storage is where servers keep the bucket. An existing bucket must have the same.
	Storage jetstream.StorageType

	timeout time.Duration // of each request; 0: requestTimeout
}

// requestTimeout bounds each request, in addition to the caller's ctx.
const requestTimeout = 5 * time.Second

// store is a durable.Store in a key-value bucket. It has no goroutine of its own.
type store struct {
	conn       *nats.Conn
	js         jetstream.JetStream
	stream     jetstream.Stream
	bucket     string
	ledger     string        // prefix of the ledger's keys
	prefix     string        // prefix of the ledger's subjects
	listing    string        // subject of the saved listing
	created    time.Time     // when the stream was created
	listAgain  int           // a List that reads more changes than this saves its listing
	timeout    time.Duration // of each request
	maxMessage int           // the bucket's limit of a message in bytes, if above 0
}

var _ durable.Store = (*store)(nil)

const (
	// indexHeader is the header with the record's index, so that List reads only headers. Every record of a ledger has it.
	indexHeader = "Lease"

	// retryWait is the pause before a retry when no server responded, as while a stream elects its leader.
	retryWait = 50 * time.Millisecond

	// maxHeaders bounds the size of a message's headers in bytes, which count towards the limit like its data.
	maxHeaders = 128

	codeConflict         = 10071 // wrong last sequence: {seq}
	codeConflictInFlight = 10164 // wrong last sequence: another write of the key is under way
	codeTooLarge         = 10054 // message size exceeds maximum allowed
	codeNoResources      = 10023 // insufficient resources
	codeNoStorage        = 10047 // insufficient storage resources available
	codeNotStored        = 10077 // the description has the reason
	codeNotFound         = 10037 // no message found
)

// named returns the store of another ledger in the bucket of s.
func (s *store) named(ledger string) *store {
	own := *s
	own.ledger, own.prefix, own.listing = ledger+".", "$KV."+s.bucket+"."+ledger+".", "$KV."+s.bucket+"."+ledger+"/listed"
	return &own
}

// Load implements durable.Store.
func (s *store) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	key, long := keyOf(name)
	m, err := s.last(ctx, s.prefix+key)
	if err != nil || m == nil {
		return nil, 0, err
	}
	if _, err := s.indexOf(key, m.header); err != nil {
		return nil, 0, err
	}
	if long {
		of, state, ok := cutName(m.data)
		if !ok || of != name {
			return nil, 0, s.unexpected(key, "the name of another domain")
		}
		return state, m.sequence, nil
	}
	return m.data, m.sequence, nil
}

// indexOf returns the index of a record, from the header of its message.
func (s *store) indexOf(key string, header nats.Header) (durable.Index, error) {
	for _, index := range []durable.Index{durable.Neither, durable.Ready, durable.Held} {
		if header.Get(indexHeader) == index.String() {
			return index, nil
		}
	}
	reason := "not a record of a ledger"
	if op := header.Get("KV-Operation"); op != "" {
		reason = "deleted (" + op + ")"
	}
	return 0, s.unexpected(key, reason)
}

type message struct {
	data     []byte
	header   nats.Header
	sequence uint64
}

// last returns the last message under a subject of the bucket, nil if there is none. Only a leader answers this request; the one
// that jetstream sends for a bucket is also answered by followers, which may be behind.
func (s *store) last(ctx context.Context, subject string) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	if err := s.connected(ctx); err != nil {
		return nil, err
	}
	reply, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+s.bucket, request)
	for err != nil && errors.Is(err, nats.ErrNoResponders) && pause(ctx) {
		reply, err = s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+s.bucket, request)
	}
	if err != nil {
		return nil, s.unreachable(err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, s.unreachable(err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == codeNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, s.unreachable(answer.Error)
	case answer.Message == nil || answer.Message.Sequence == 0:
		return nil, s.unreachable(fmt.Errorf("an answer without a message: %.100q", reply.Data))
	}
	m := &message{data: answer.Message.Data, sequence: answer.Message.Sequence}
	if len(answer.Message.Header) > 0 {
		if m.header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, s.unexpected(strings.TrimPrefix(subject, s.prefix), err.Error())
		}
	}
	return m, nil
}

// connected waits for a connection. Without one the client would only buffer what is published.
func (s *store) connected(ctx context.Context) error {
	for !s.conn.IsConnected() {
		if s.conn.IsClosed() {
			return s.unreachable(nats.ErrConnectionClosed)
		}
		if !pause(ctx) {
			return s.unreachable(fmt.Errorf("not connected: %w", ctx.Err()))
		}
	}
	return nil
}

// pause waits for retryWait, and reports false if ctx is done first.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(retryWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *store) unexpected(key, reason string) error {
	return unexpectedValue(s.bucket, s.ledger+key, errors.New(reason))
}

func (s *store) unreachable(err error) error { return &unreachableError{bucket: s.bucket, err: err} }

// Limit implements durable.Store: the server's max_payload, or the bucket's limit if that is less.
func (s *store) Limit(name string) int {
	limit := int(s.conn.MaxPayload())
	if s.maxMessage > 0 {
		limit = min(limit, s.maxMessage)
	}
	limit -= maxHeaders
	if _, long := keyOf(name); long {
		limit -= len(name) + binary.MaxVarintLen64
	}
	return max(1, limit) // 0 would mean no limit
}

// Swap implements durable.Store.
func (s *store) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	key, long := keyOf(name)
	m := nats.NewMsg(s.prefix + key)
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(old, 10)}
	m.Header[indexHeader] = []string{index.String()}
	m.Data = state
	if long {
		m.Data = withName(name, state)
	}
	if err := s.connected(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	}
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	for errors.Is(err, jetstream.ErrNoStreamResponse) && pause(ctx) {
		ack, err = s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	}
	if err == nil {
		return ack.Sequence, nil
	}
	var apiErr *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, s.unreachable(err)) // no server accepted any of the attempts
	case errors.Is(err, nats.ErrMaxPayload):
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	case !errors.As(err, &apiErr):
		return 0, s.unreachable(err)
	}
	switch apiErr.ErrorCode {
	case codeConflict, codeConflictInFlight:
		return 0, fmt.Errorf("%w: %w", durable.ErrConflict, err)
	case codeTooLarge, codeNoResources, codeNoStorage:
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	case codeNotStored:
		if strings.Contains(apiErr.Description, "maximum") { // the bucket's limit of bytes or messages
			return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
		}
	}
	return 0, err
}
