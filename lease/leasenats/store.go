package leasenats

// This file is the Store: configuration, Load and Swap.

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
	// Bucket is the key-value bucket: letters, digits, - and _. Required. OpenStore creates it if it does not exist.
	Bucket string
	// Name is the ledger's name in the bucket: letters, digits, - and _, not beginning with source-. "": "ledger". Only
	// keys that begin with the name and a point are read, and <Name>/listed.
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
	conn      *nats.Conn
	js        jetstream.JetStream
	stream    jetstream.Stream
	bucket    string
	ledger    string    // the beginning of its keys
	prefix    string    // of the ledger's subjects
	listing   string    // the subject of what List wrote down
	created   time.Time // the stream
	listAgain int       // how many changes a List reads again before it writes down what it found
	timeout   time.Duration
	most      int // bytes that the bucket takes in a message, if above 0
}

var _ durable.Store = (*store)(nil)

const (
	// indexHeader of a message is the shelf of its record, so that List reads headers alone. It marks a message as a ledger's.
	indexHeader = "Lease"

	// retryWait is between two publishes that no server took, as while a stream elects its leader.
	retryWait = 50 * time.Millisecond

	// maxHeaders is more than the headers of a message take, which count like its data.
	maxHeaders = 128

	codeConflict         = 10071 // wrong last sequence: {seq}
	codeConflictInFlight = 10164 // wrong last sequence: another write of the key is under way
	codeTooLarge         = 10054 // message size exceeds maximum allowed
	codeNoResources      = 10023 // insufficient resources
	codeNoStorage        = 10047 // insufficient storage resources available
	codeNotStored        = 10077 // with the reason in words
	codeNotFound         = 10037 // no message found
)

// named is the store of a ledger in the bucket of s.
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
			return nil, 0, s.foreign(key, "the name of another domain")
		}
		return state, m.sequence, nil
	}
	return m.data, m.sequence, nil
}

// indexOf is the shelf of the record in a message with that header.
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
	return 0, s.foreign(key, reason)
}

type message struct {
	data     []byte
	header   nats.Header
	sequence uint64
}

// last is the last message under a subject of the bucket, nil if there is none. The request is the one that only a leader
// answers: what jetstream sends for a bucket is served by followers too, who may be behind.
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
			return nil, s.foreign(strings.TrimPrefix(subject, s.prefix), err.Error())
		}
	}
	return m, nil
}

// connected waits until there is a connection: what is published without one lies in the client's buffer until there is, and
// nobody would know.
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

// pause waits a little and reports whether there is time left.
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

func (s *store) foreign(key, reason string) error {
	return foreignKey(s.bucket, s.ledger+key, reason)
}

func (s *store) unreachable(err error) error { return &unreachableError{bucket: s.bucket, err: err} }

// Limit implements durable.Store: the server's max_payload, or the bucket's limit if that is less.
func (s *store) Limit(name string) int {
	limit := int(s.conn.MaxPayload())
	if s.most > 0 {
		limit = min(limit, s.most)
	}
	limit -= maxHeaders
	if _, long := keyOf(name); long {
		limit -= len(name) + binary.MaxVarintLen64
	}
	return max(1, limit) // 0 would be no limit at all
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
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, s.unreachable(err)) // no server took it, each time that it was sent
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
		if strings.Contains(apiErr.Description, "maximum") { // bytes or messages: the limits of the bucket
			return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
		}
	}
	return 0, err
}
