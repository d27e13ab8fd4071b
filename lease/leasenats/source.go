// SPDX-License-Identifier: Apache-2.0

package leasenats

// A source reads one partition of a stream.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// sourceConfig says which partition a source is.
type sourceConfig struct {
	Conn      func(context.Context) (*nats.Conn, error) // the connection for what may be large: records
	Bytes     int                                       // bounds what one request brings, if that is more than one record
	Stream    string
	Subjects  []string                     // the partition's subjects. Empty: the whole stream
	Bucket    string                       // the key-value bucket of the position, for errors
	Partition string                       // names the position in the bucket
	Domain    func(dispatch.Record) string // nil: the subject
	Timeout   time.Duration                // bounds each request, in addition to ctx; not Fetch's wait for a message
}

// source is a partition of a JetStream stream. Offsets are stream sequences, so messages of other partitions leave gaps. It
// reads through consumers that begin at any sequence, need no acknowledgement and leave no state on the server; the
// position is one number in a key-value bucket. A durable consumer would be a second record of progress, with acknowledgement
// timeouts of its own, and its floor cannot be fenced. A key can: see Committed.
//
// It must be closed after the Dispatcher's Run has returned.
type source struct {
	cfg sourceConfig
	js  jetstream.JetStream
	kv  jetstream.KeyValue
	key string

	position position
	trail    trail
	doubted  atomic.Bool // the stream has another message than the one that was read last
	readers  []*reader   // least recently used first; only Fetch and Close use them
	broken   bool        // a reader has failed, or none has begun yet: the stream may have been put back

	end      atomic.Int64 // what End returned last; 0: nothing yet
	seen     [2]uint64    // only End uses these: the stream's last sequence and number of messages at that time,
	askAgain time.Time    // and when it may read a last message again
}

var (
	_ dispatch.Source = (*source)(nil)
	_ dispatch.Ended  = (*source)(nil)
)

// reader reads the stream onwards from one sequence.
type reader struct {
	next int64 // the next message has this sequence or a greater one
	*feed
}

const (
	// maxReaders is one for new messages and one for messages that are read again.
	maxReaders = 2
	// nextMessageWait is how long Fetch waits for one more message when it has some.
	nextMessageWait = time.Millisecond
	// endBytes bounds what End reads in a second, where messages are large.
	endBytes = 128 << 10
)

func newSource(cfg sourceConfig, js jetstream.JetStream, kv jetstream.KeyValue) *source {
	return &source{cfg: cfg, js: js, kv: kv, key: positions + cfg.Stream + "." + cfg.Partition,
		position: position{owner: rand.Text()}, broken: true}
}

// Fetch implements dispatch.Source. It returns the records of one request at most. A reader that fails, or to which nothing comes
// although the stream goes on, makes room for another one.
func (s *source) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	r, made, err := s.reader(ctx, from)
	if err != nil {
		return nil, err
	}
	var records []dispatch.Record
	wait, bytes := time.Duration(0), 0
	for len(records) < limit && bytes < s.cfg.Bytes {
		m, meta, err := r.feed.next(ctx, wait)
		if err == nil {
			r.next = int64(meta.Sequence.Stream) + 1
			s.trail.read(record{r.next - 1, meta.Timestamp.UnixNano()})
			got := dispatch.Record{
				Domain: m.Subject, Offset: r.next - 1, Payload: m.Data, Headers: headersOf(m.Header), Time: meta.Timestamp,
			}
			if s.cfg.Domain != nil {
				got.Domain = s.cfg.Domain(got)
			}
			records = append(records, got)
			wait, bytes = nextMessageWait, bytes+m.Size()
			continue
		}
		alive := ctx.Err() != nil || errors.Is(err, nats.ErrTimeout) || errors.Is(err, errNothing) && s.end.Load() <= r.next
		if !alive {
			if errors.Is(err, errSilent) {
				r.conn.Close()
			}
			s.drop(r) // another one begins where it ended
			s.broken = true
		}
		switch {
		case len(records) > 0:
			return records, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case alive: // nothing has come
			continue
		case made:
			return nil, s.failed(err)
		}
		if r, made, err = s.reader(ctx, from); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// check rejects another stream than the one whose position was claimed; see sameLog.
func (s *source) check(ctx context.Context, closely bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return s.failed(err)
	}
	return s.sameLog(ctx, stream, closely)
}

// headersOf returns the headers sorted by name: the client does not keep their order.
func headersOf(of nats.Header) (headers []dispatch.Header) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		for _, value := range of[key] {
			headers = append(headers, dispatch.Header{Key: key, Value: []byte(value)})
		}
	}
	return headers
}

// reader returns a reader whose next message is at from, and whether it was made now.
func (s *source) reader(ctx context.Context, from int64) (r *reader, made bool, err error) {
	for i, r := range s.readers {
		if r.next == from {
			s.readers = append(append(s.readers[:i:i], s.readers[i+1:]...), r)
			return r, false, nil
		}
	}
	if len(s.readers) == maxReaders {
		s.drop(s.readers[0])
	}
	conn, err := s.cfg.Conn(ctx)
	if err != nil {
		return nil, false, s.failed(err)
	}
	of := jetstream.ConsumerConfig{
		FilterSubjects: s.cfg.Subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(max(1, from)),
	}
	feed, err := openFeed(ctx, s.js, conn, s.cfg.Stream, of, s.cfg.Bytes, s.cfg.Timeout)
	if err != nil {
		return nil, false, s.failed(err)
	}
	// What it brings is of the stream that is there now.
	if err := s.check(ctx, s.broken); err != nil {
		feed.close()
		return nil, false, err
	}
	s.broken = false
	r = &reader{next: from, feed: feed}
	s.readers = append(s.readers, r)
	return r, true, nil
}

// drop removes a reader and deletes its consumer. The server would keep it for minutes, while a domain that is behind needs a new
// one for each place that is read again.
func (s *source) drop(r *reader) {
	r.close()
	for i := range s.readers {
		if s.readers[i] == r {
			s.readers = append(s.readers[:i:i], s.readers[i+1:]...)
			return
		}
	}
}

// End implements dispatch.Ended: the sequence after the last message that the partition's subjects had, though those that were read may
// be deleted. It reads the last that they have, over the connection for records, if the stream has a new one: large ones seldom, and
// Lag is behind for so long.
func (s *source) End(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return 0, s.failed(err)
	}
	if err := s.sameLog(ctx, stream, s.doubted.Load()); err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	last := int64(state.LastSeq) + 1
	seen, end, bytes := [2]uint64{state.LastSeq, state.Msgs}, min(last, s.known()), 0
	if known := s.end.Load(); known > 0 && (seen == s.seen || time.Now().Before(s.askAgain)) {
		return known, nil
	}
	if len(s.cfg.Subjects) == 0 {
		end = last
	}
	for _, subject := range s.cfg.Subjects {
		m, err := s.lastOf(ctx, subject)
		switch {
		case err == nil:
			end = max(end, int64(m.Sequence)+1)
			bytes += len(m.Data)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, s.failed(err)
		}
	}
	s.end.Store(end)
	s.seen, s.askAgain = seen, time.Now().Add(time.Duration(bytes)*time.Second/endBytes)
	return end, nil
}

// lastOf reads the last message of a subject, over the connection for records.
func (s *source) lastOf(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	conn, err := s.cfg.Conn(ctx)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return nil, err
	}
	return stream.GetLastMsgForSubject(ctx, subject)
}

// Close stops reading. The position stays in the bucket.
func (s *source) Close() {
	for len(s.readers) > 0 {
		s.drop(s.readers[0])
	}
}

func (s *source) failed(err error) error {
	return fmt.Errorf("leasenats: stream %s, partition %s: %w", s.cfg.Stream, s.cfg.Partition, err)
}
