// SPDX-License-Identifier: Apache-2.0

package leasenats

// The journals of ledgers that are written per window are in a stream beside the bucket, each under a subject of its own. An entry
// is added if the last one is the one that its owner knows of; to claim a journal is to add a message, of which former owners do
// not know.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/internal/journal"
)

// claimHeader is the header with the number of the claim under which a message was added. A message without data is a claim.
const claimHeader = "Claim"

// journalStore is a journal.Store.
type journalStore struct {
	*store
	stream  jetstream.Stream // of the journals
	subject string
	read    func(context.Context) (*nats.Conn, error) // the connection to read over

	claim    uint64
	sequence uint64 // of the last message under the subject, as far as is known
}

var _ journal.Store = (*journalStore)(nil)

// journalConfig is the stream that a Group with Journal creates.
func journalConfig(cfg StoreConfig) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "JOURNAL_" + cfg.Bucket, Description: "work leases (stopbank)", Subjects: []string{"stopbank.journal." + cfg.Bucket + ".>"},
		Storage: cfg.Storage, Replicas: max(1, cfg.Replicas), MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
		Discard: jetstream.DiscardNew,
	}
}

// openJournals finds or creates the stream, and rejects one that would lose entries or return old ones.
func openJournals(ctx context.Context, s *store, cfg StoreConfig) (jetstream.Stream, error) {
	want := journalConfig(cfg)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if stream, err = s.js.CreateStream(ctx, want); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // by another process
			stream, err = s.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, s.unreachable(err)
	}
	got := stream.CachedInfo().Config
	for _, c := range []struct {
		ok      bool
		field   string
		value   any
		allowed string
	}{
		{slices.Equal(got.Subjects, want.Subjects), "Subjects", got.Subjects, fmt.Sprint(want.Subjects)},
		{got.MaxAge == 0 && !got.AllowMsgTTL, "MaxAge, AllowMsgTTL", got.MaxAge, "0 and false: entries must not expire"},
		{got.MaxMsgsPerSubject <= 0, "MaxMsgsPerSubject", got.MaxMsgsPerSubject, "-1: all entries are read"},
		{got.Retention == jetstream.LimitsPolicy, "Retention", got.Retention, "limits"},
		{got.Discard == jetstream.DiscardNew, "Discard", got.Discard, "new: a full stream must reject new entries, not drop old ones"},
		{got.Mirror == nil && len(got.Sources) == 0, "Mirror, Sources", "set", "none: the stream must have one writer, its leader"},
		{got.SubjectTransform == nil, "SubjectTransform", got.SubjectTransform, "none"},
		{!got.Sealed && !got.NoAck && !got.DenyPurge && !got.AllowDirect, "Sealed, NoAck, DenyPurge, AllowDirect", "set", "false"},
		{got.Storage == want.Storage, "Storage", got.Storage, want.Storage.String()},
		{got.Replicas >= cfg.Replicas, "Replicas", got.Replicas, fmt.Sprintf("%d or more", cfg.Replicas)},
	} {
		if !c.ok {
			return nil, invalidField("stream "+want.Name+": "+c.field, c.value, c.allowed)
		}
	}
	return stream, nil
}

// journal returns the journal of a partition, which is read over another connection than it is written.
func (s *store) journal(stream jetstream.Stream, partition string, read func(context.Context) (*nats.Conn, error)) *journalStore {
	return &journalStore{store: s, stream: stream, subject: "stopbank.journal." + s.bucket + "." + partition, read: read}
}

// last returns the claim and the sequence of the last message; 0 and 0 if there is none.
func (s *journalStore) last(ctx context.Context) (claim, sequence uint64, err error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, s.subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, s.unreachable(err)
	}
	if claim, err = strconv.ParseUint(m.Header.Get(claimHeader), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("leasenats: message %d of subject %s is no entry of a journal", m.Sequence, s.subject)
	}
	return claim, m.Sequence, nil
}

// publish adds a message after the one that is known.
func (s *journalStore) publish(ctx context.Context, claim uint64, data []byte) error {
	m := nats.NewMsg(s.subject)
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(s.sequence, 10)}
	m.Header[claimHeader] = []string{strconv.FormatUint(claim, 10)}
	m.Data = data
	if err := s.connected(ctx); err != nil {
		return err
	}
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	for errors.Is(err, jetstream.ErrNoStreamResponse) && pause(ctx) {
		ack, err = s.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	}
	if err == nil {
		s.sequence = ack.Sequence
	}
	return err
}

// Claim implements journal.Store.
func (s *journalStore) Claim(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for {
		claim, sequence, err := s.last(ctx)
		if err != nil {
			return 0, err
		}
		s.sequence, s.claim = sequence, max(claim+1, uint64(time.Now().Unix()))
		switch err := s.publish(ctx, s.claim, nil); {
		case err == nil:
			return s.claim, nil
		case !conflict(err):
			return 0, s.unreachable(err)
		case !pause(ctx):
			return 0, s.unreachable(ctx.Err())
		}
	}
}

// Read implements journal.Store. It ends with the message of its claim. Only the wait for each message is bounded: over a slow link
// a long journal takes its time.
func (s *journalStore) Read(ctx context.Context, take func(entry []byte) error) error {
	conn, err := s.read(ctx)
	if err != nil {
		return s.unreachable(err)
	}
	f, err := openFeed(ctx, s.js, conn, s.stream.CachedInfo().Config.Name, jetstream.ConsumerConfig{FilterSubject: s.subject}, mostBytes,
		s.timeout)
	if err != nil {
		return s.unreachable(err)
	}
	defer f.close()
	for {
		m, meta, err := f.next(ctx, 0)
		if err != nil {
			return s.unreachable(err)
		}
		if len(m.Data) > 0 {
			if err := take(m.Data); err != nil {
				return err
			}
		}
		if meta.Sequence.Stream >= s.sequence {
			return nil
		}
	}
}

var errEntries = errors.New("it has lost entries: it was made anew or put back")

// Append implements journal.Store.
func (s *journalStore) Append(ctx context.Context, entry []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for {
		err := s.publish(ctx, s.claim, entry)
		if err == nil {
			return s.sequence, nil
		}
		if !conflict(err) {
			return 0, s.unreachable(err)
		}
		// Either another owner has claimed the journal, or an entry is there whose reply was lost.
		switch claim, sequence, err := s.last(ctx); {
		case err != nil:
			return 0, err
		case claim != s.claim:
			return 0, s.unreachable(journal.ErrClaimed)
		case sequence < s.sequence:
			return 0, s.unreachable(errors.Join(journal.ErrClaimed, errEntries))
		case sequence == s.sequence && !pause(ctx): // another write is under way
			return 0, s.unreachable(ctx.Err())
		default:
			s.sequence = sequence
		}
	}
}

// Trim implements journal.Store.
func (s *journalStore) Trim(ctx context.Context, below uint64) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject), jetstream.WithPurgeSequence(below)); err != nil {
		return s.unreachable(err)
	}
	return nil
}

// Limit implements journal.Store: the server's max_payload, or the stream's limit if that is less.
func (s *journalStore) Limit() int {
	limit := int(s.conn.MaxPayload())
	if most := int(s.stream.CachedInfo().Config.MaxMsgSize); most > 0 {
		limit = min(limit, most)
	}
	return max(1, limit-maxHeaders)
}
