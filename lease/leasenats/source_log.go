// SPDX-License-Identifier: Apache-2.0

package leasenats

// A position is of one stream: of the time at which that was created, which a stream that is made anew or a mirror that is promoted
// does not share, and of a record below the floor, which shows a stream that was put back and filled again.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// record is a record's sequence and its time, in Unix nanoseconds. The zero record is none.
type record struct{ sequence, at int64 }

// trail is what a source remembers of what it has read.
type trail struct {
	mu     sync.Mutex // guards the rest
	newest record     // at first what the former owner had below the floor
	next   record     // will be below the floor
	below  record     // is below the floor
}

// begin begins behind what a former owner had read.
func (r *trail) begin(below record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.below = below
	if below.sequence > r.newest.sequence {
		r.newest = below
	}
}

func (r *trail) read(got record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if got.sequence > r.newest.sequence {
		r.newest = got
	}
}

// under returns a record below floor, lately the newest of those that were read.
func (r *trail) under(floor int64) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range []record{r.next, r.newest} {
		if known.sequence > r.below.sequence && known.sequence < floor {
			r.below, r.next = known, r.newest
		}
	}
	if r.next.sequence <= r.below.sequence {
		r.next = r.newest
	}
	return r.below
}

// sameStream rejects a stream that was not created at that time; 0: any is right.
func (s *source) sameStream(stream jetstream.Stream, created int64) error {
	if is := stream.CachedInfo().Created; created != 0 && created != is.UnixNano() {
		return s.rewound("the position is of the stream that was created at %s, and this one was at %s: it was made anew, or is a "+
			"promoted mirror. If it has the same messages under the same sequences, let leasectl adopt it; else give the group a new Bucket",
			time.Unix(0, created).UTC().Format(time.RFC3339Nano), is.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// sameRecord rejects a stream that has another message where known was. It reads no content, which may be large.
func (s *source) sameRecord(ctx context.Context, known record) error {
	if known.sequence == 0 {
		return nil
	}
	of := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(known.sequence), HeadersOnly: true,
	}
	f, err := openFeed(ctx, s.js, s.js.Conn(), s.cfg.Stream, of, leastBytes, s.cfg.Timeout)
	if err != nil {
		return s.failed(err)
	}
	defer f.close()
	if f.pending == 0 {
		return nil
	}
	_, meta, err := f.next(ctx, 0)
	switch {
	case err != nil:
		return s.failed(err)
	case meta.Sequence.Stream != uint64(known.sequence): // it was deleted, as messages are
		return nil
	case meta.Timestamp.UnixNano() != known.at:
		return s.rewound("the message %d that was handled was of %s, and this one is of %s: the stream was put back, and has other "+
			"messages now that would be taken for done. Give the group a new Bucket", known.sequence,
			time.Unix(0, known.at).UTC().Format(time.RFC3339Nano), meta.Timestamp.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// sameLog rejects another stream than the one that this source has claimed a position of, and with closely also one that was put
// back and filled again. The error is a dispatch.ErrLost when somebody has claimed the position since, as leasectl does to adopt a
// stream.
func (s *source) sameLog(ctx context.Context, stream jetstream.Stream, closely bool) error {
	p := &s.position
	p.mu.Lock()
	created := p.created
	p.mu.Unlock()
	err := s.sameStream(stream, created)
	if err == nil && closely {
		s.trail.mu.Lock()
		newest := s.trail.newest
		s.trail.mu.Unlock()
		if last := int64(stream.CachedInfo().State.LastSeq); last < newest.sequence {
			err = s.rewound("the stream ends at %d, and was read to %d: it was put back, and what comes below would be taken for done. "+
				"Give the group a new Bucket", last, newest.sequence)
		} else {
			err = s.sameRecord(ctx, newest)
		}
		s.doubted.Store(errors.Is(err, dispatch.ErrRewound))
	}
	if errors.Is(err, dispatch.ErrRewound) {
		if now, _, readErr := s.read(ctx); readErr == nil && now.owner != p.owner {
			return s.claimed(now.floor)
		}
	}
	return err
}

func (s *source) rewound(format string, a ...any) error {
	return dispatch.Rewound(s.cfg.Partition, s.failed(fmt.Errorf(format, a...)))
}
