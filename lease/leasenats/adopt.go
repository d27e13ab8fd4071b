// SPDX-License-Identifier: Apache-2.0

package leasenats

// What is in a bucket of a log that is another one now can be told to take that for its own.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/adopt"
)

// Bindings is for leasectl: the positions that groups have in a bucket of a stream, unless that is "", and the bucket's ledgers that
// are of a log elsewhere. It blocks for a request or two for each. Errors: *lease.InvalidError naming the field, or the client's.
func Bindings(ctx context.Context, nc *nats.Conn, bucket, stream string) (all []adopt.Binding, err error) {
	cfg := StoreConfig{Conn: nc, Bucket: bucket, Name: "ledger"}
	if err := validate(ctx, "", cfg); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, err
	}
	var st jetstream.Stream
	var positioned []string
	if stream != "" {
		if st, err = js.Stream(ctx, stream); err == nil {
			positioned, err = keys(ctx, kv, positions+stream+".*")
		}
	}
	if err != nil {
		return nil, err
	}
	for _, key := range positioned {
		s := &source{cfg: sourceConfig{Stream: stream, Bucket: bucket, Partition: key[strings.IndexByte(key, '.')+1:], Timeout: requestTimeout},
			js: js, kv: kv, key: key}
		v, revision, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, s.binding(ctx, st, v, revision))
	}
	roots, err := keys(ctx, kv, "*."+rootKey)
	if err != nil || len(roots) == 0 {
		return all, err
	}
	of, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	ledgers, err := adopt.Ledgers(ctx, iter.Seq2[string, durable.Store](func(yield func(string, durable.Store) bool) {
		for _, key := range roots {
			if name := strings.TrimSuffix(key, "."+rootKey); !yield(name, of.named(name)) {
				return
			}
		}
	}))
	return append(all, ledgers...), err
}

// binding is that of a position with the revision. To adopt is to claim the position in an owner's place: one that runs has lost it
// by that, and the next finds the stream that is there.
func (s *source) binding(ctx context.Context, stream jetstream.Stream, v stored, revision uint64) adopt.Binding {
	named := func(created int64) string {
		return fmt.Sprintf("stream %s of %s", s.cfg.Stream, time.Unix(0, created).UTC().Format(time.RFC3339Nano))
	}
	info := stream.CachedInfo()
	b := adopt.Binding{Name: s.cfg.Partition, Of: named(v.created), Is: named(info.Created.UnixNano()),
		Adopt: func(ctx context.Context) error {
			_, err := s.kv.Update(ctx, s.key, stored{floor: v.floor, owner: "adopted"}.text(), revision)
			if err != nil {
				return s.failed(err)
			}
			return nil
		}}
	b.Bars = adopt.Beyond("leasenats.position", v.floor, int64(info.State.LastSeq)+1)
	if b.Bars == nil {
		b.Bars = s.sameRecord(ctx, v.below)
	}
	if v.created == 0 {
		b.Of = b.Is // it takes what it finds
	}
	return b
}

// keys returns the keys of a bucket that match.
func keys(ctx context.Context, kv jetstream.KeyValue, pattern string) (found []string, err error) {
	list, err := kv.ListKeysFiltered(ctx, pattern)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for key := range list.Keys() {
		found = append(found, key)
	}
	return found, nil
}
