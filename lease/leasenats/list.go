// SPDX-License-Identifier: Apache-2.0

package leasenats

// List starts from the listing that an earlier List saved, and reads the headers of the keys that were written since.

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
)

// listBatch is above how many headers that it has read a List saves its listing for the next one.
const listBatch = 1000

// List implements durable.Store. Its consumer is deleted before the first name is yielded, and the names stay in memory. A
// name that is too long for a key costs one more request. A key of the ledger that is not a record is an error.
func (s *store) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		keys, err := s.currentListing(ctx)
		if err != nil {
			yield("", err)
			return
		}
		for key, at := range keys.live {
			if at != index {
				continue
			}
			name, err := s.nameOf(ctx, key)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// listing is the set of keys that were ready or held up to a sequence of the stream. It cannot become wrong: a key that is
// written later has a message after that sequence. So a listing needs no transaction with the records, and versions of this
// package that do not know it may write them. Its key is outside the ledger's prefix, where older versions do not look.
type listing struct {
	live     map[string]durable.Index // by key
	sequence uint64
	version  uint64 // the revision of the saved listing; 0: none was saved
}

// savedListing is the JSON of a listing.
type savedListing struct {
	Created  time.Time // when the stream was created: in a copy of the stream, the sequence means nothing
	Sequence uint64
	Ready    []string
	Held     []string
}

// currentListing returns the listing up to the newest key.
func (s *store) currentListing(ctx context.Context) (*listing, error) {
	l, err := s.readListing(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := s.last(ctx, s.prefix+">")
	if err != nil {
		return nil, err
	}
	if newest == nil || newest.sequence <= l.sequence {
		return l, nil
	}
	changes, err := s.catchUp(ctx, l, newest.sequence)
	if err != nil {
		return nil, err
	}
	if changes > max(s.listAgain, len(l.live)) {
		s.writeListing(ctx, l)
	}
	return l, nil
}

// readListing returns the saved listing. If there is none, or it cannot be decoded, the returned one is empty.
func (s *store) readListing(ctx context.Context) (*listing, error) {
	m, err := s.last(ctx, s.listing)
	if err != nil {
		return nil, err
	}
	l := &listing{live: map[string]durable.Index{}}
	if m == nil {
		return l, nil
	}
	l.version = m.sequence
	var w savedListing
	if json.Unmarshal(m.data, &w) == nil && w.Created.Equal(s.created) {
		l.sequence = w.Sequence
		for _, key := range w.Ready {
			l.live[key] = durable.Ready
		}
		for _, key := range w.Held {
			l.live[key] = durable.Held
		}
	}
	return l, nil
}

// writeListing saves l, unless it is too long for a message or another one has been saved meanwhile. Failing costs only time.
func (s *store) writeListing(ctx context.Context, l *listing) {
	w := savedListing{Created: s.created, Sequence: l.sequence}
	for key, at := range l.live {
		if at == durable.Ready {
			w.Ready = append(w.Ready, key)
		} else {
			w.Held = append(w.Held, key)
		}
	}
	m := nats.NewMsg(s.listing)
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(l.version, 10)}
	var err error
	if m.Data, err = json.Marshal(w); err != nil || len(m.Data) > s.Limit("") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, _ = s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
}

// catchUp reads the headers after l's sequence to the end of the stream, newest or later, and returns how many it read. A key that is
// written meanwhile moves to the end, where it is read; so a name that was ready or held all the time is not missed.
func (s *store) catchUp(ctx context.Context, l *listing, newest uint64) (changes int, err error) {
	of := jetstream.ConsumerConfig{FilterSubject: s.prefix + ">", DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: l.sequence + 1, HeadersOnly: true}
	f, err := openFeed(ctx, s.js, s.conn, "KV_"+s.bucket, of, mostBytes, s.timeout)
	if err != nil {
		return 0, s.unreachable(err)
	}
	defer f.close()
	f.ends = true // how many are pending, the server knows only roughly while keys are written again
	for late := time.Now().Add(s.timeout); ; {
		m, meta, err := f.next(ctx, 0)
		switch {
		case errors.Is(err, errNothing) && l.sequence >= newest:
			return changes, nil
		case errors.Is(err, errNothing) && time.Now().Before(late) && pause(ctx): // the server of the consumer is behind the leader
			continue
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, s.unreachable(fmt.Errorf("the list ends at %d, the bucket at %d: %w", l.sequence, newest, err))
		}
		late = time.Now().Add(s.timeout)
		key := strings.TrimPrefix(m.Subject, s.prefix)
		at, err := s.keyIndex(key, m.Header)
		if err != nil {
			return 0, err
		}
		changes++
		if l.sequence = meta.Sequence.Stream; at == durable.Neither {
			delete(l.live, key)
		} else {
			l.live[key] = at
		}
	}
}

// keyIndex returns the index of a key, and an error if the key is not a ledger's.
func (s *store) keyIndex(key string, header nats.Header) (durable.Index, error) {
	at, err := s.indexOf(key, header)
	if err != nil || key == rootKey {
		return durable.Neither, err
	}
	if rest, ok := strings.CutPrefix(key, hashed); ok && len(rest) == 2*sha256.Size {
		return at, nil
	}
	if rest, ok := strings.CutPrefix(key, plain); ok {
		if _, ok = unescape(rest); ok {
			return at, nil
		}
	}
	return 0, s.unexpected(key, "not a key of a ledger")
}

// nameOf returns the name of a key. If the key is a hash, it reads the record.
func (s *store) nameOf(ctx context.Context, key string) (string, error) {
	if rest, ok := strings.CutPrefix(key, plain); ok {
		if name, ok := unescape(rest); ok {
			return name, nil
		}
	}
	m, err := s.last(ctx, s.prefix+key)
	if err != nil {
		return "", err
	}
	if m != nil {
		name, _, ok := cutName(m.data)
		if again, long := keyOf(name); ok && long && again == key {
			return name, nil
		}
	}
	return "", s.unexpected(key, "the name of another domain")
}
