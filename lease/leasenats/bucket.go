// SPDX-License-Identifier: Apache-2.0

package leasenats

// OpenStore finds or creates the bucket, and rejects one that would lose records or return old ones.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/durable"
)

// OpenStore returns the store of a ledger in a bucket, and creates the bucket if it does not exist; ctx and 5 seconds
// bound that. There is nothing to close. Errors: *lease.InvalidError naming the field, also for an existing bucket that
// would lose records, as in "bucket orders: MaxAge"; or the client's.
//
// A Load and a Swap take one round trip each, bounded by its ctx and 5 seconds; a Load asks the stream's leader. A
// leader that is being deposed, cut off from the other servers, may still answer with an old record. While no server
// accepts a write, as during an election, it is sent again until the time is over. A list reads the headers of the
// keys written since the last list that saved its result, of any process; the first one in a bucket reads those of all
// domains.
func OpenStore(ctx context.Context, cfg StoreConfig) (durable.Store, error) {
	if cfg.Name == "" {
		cfg.Name = "ledger"
	}
	if err := validate(ctx, "StoreConfig.", cfg); err != nil {
		return nil, err
	}
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// open returns the store for a valid configuration.
func open(ctx context.Context, cfg StoreConfig) (*store, error) {
	if cfg.timeout == 0 {
		cfg.timeout = requestTimeout
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, invalidField("StoreConfig.Conn", err.Error(), "a connection to a server with JetStream")
	}
	s := (&store{conn: cfg.Conn, js: js, bucket: cfg.Bucket, timeout: cfg.timeout, listAgain: listBatch}).named(cfg.Name)
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	want := bucketConfig(cfg)
	s.stream, err = js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.stream, err = js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // by another process, just now
			s.stream, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, s.unreachable(err)
	}
	if err := checkBucket(cfg, want, s.stream.CachedInfo().Config); err != nil {
		return nil, err
	}
	s.maxMessage, s.created = int(s.stream.CachedInfo().Config.MaxMsgSize), s.stream.CachedInfo().Created
	return s, nil
}

// tokens describes, in errors, the names that token accepts.
const tokens = "1 to 64 letters, digits, - and _"

// positions is the prefix of the keys of the sources' positions. A ledger's name must not begin with it.
const positions = "source-"

func token(s string) bool {
	return s != "" && len(s) <= 64 && !slices.ContainsFunc([]byte(s), func(c byte) bool { return !safe(c) || c == '/' })
}

// validate checks a configuration. Errors prefix the field's name with of.
func validate(ctx context.Context, of string, cfg StoreConfig) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case cfg.Conn == nil:
		return invalidField(of+"Conn", "nil", "a connection")
	case !token(cfg.Bucket):
		return invalidField(of+"Bucket", strconv.Quote(cfg.Bucket), tokens)
	case !token(cfg.Name), strings.HasPrefix(cfg.Name, positions):
		return invalidField(of+"Name", strconv.Quote(cfg.Name), tokens+", not beginning with "+positions)
	case cfg.Replicas < 0 || cfg.Replicas > 5:
		return invalidField(of+"Replicas", cfg.Replicas, "0 to 5")
	case cfg.Storage != jetstream.FileStorage && cfg.Storage != jetstream.MemoryStorage:
		return invalidField(of+"Storage", int(cfg.Storage), "FileStorage or MemoryStorage")
	}
	return nil
}

// bucketConfig returns the stream that OpenStore creates: a key-value bucket as the client makes it, without reads from
// followers.
func bucketConfig(cfg StoreConfig) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + cfg.Bucket,
		Description:       "work leases (stopbank)",
		Subjects:          []string{"$KV." + cfg.Bucket + ".>"},
		Storage:           cfg.Storage,
		Replicas:          max(1, cfg.Replicas),
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Discard:     jetstream.DiscardNew,
		AllowRollup: true,
		DenyDelete:  true,
	}
}

// checkBucket rejects a bucket that would drop records (by age, or to make room), keep them in the wrong place or fill up with
// old ones.
func checkBucket(cfg StoreConfig, want, got jetstream.StreamConfig) error {
	for _, c := range []struct {
		ok      bool
		field   string
		value   any
		allowed string
	}{
		{slices.Equal(got.Subjects, want.Subjects), "Subjects", got.Subjects, fmt.Sprint(want.Subjects)},
		{got.MaxMsgsPerSubject == 1, "MaxMsgsPerSubject", got.MaxMsgsPerSubject, "1: a history is never read"},
		{got.MaxAge == 0, "MaxAge", got.MaxAge, "0: a record that expires would be taken for a domain never seen"},
		{!got.AllowMsgTTL, "AllowMsgTTL", got.AllowMsgTTL, "false: a record must not expire"},
		{got.Retention == jetstream.LimitsPolicy, "Retention", got.Retention, "limits"},
		{got.Discard == jetstream.DiscardNew, "Discard", got.Discard, "new: a full bucket must reject new records, not drop old ones"},
		{got.Mirror == nil && len(got.Sources) == 0, "Mirror, Sources", "set", "none: the bucket must have one writer, its leader"},
		{got.SubjectTransform == nil, "SubjectTransform", got.SubjectTransform, "none"},
		{!got.Sealed, "Sealed", got.Sealed, "false"},
		{!got.NoAck, "NoAck", got.NoAck, "false"},
		{got.Storage == cfg.Storage, "Storage", got.Storage, cfg.Storage.String()},
		{got.Replicas >= cfg.Replicas, "Replicas", got.Replicas, fmt.Sprintf("%d or more", cfg.Replicas)},
	} {
		if !c.ok {
			return invalidField("bucket "+cfg.Bucket+": "+c.field, c.value, c.allowed)
		}
	}
	return nil
}
