// SPDX-License-Identifier: Apache-2.0

package leasekafka

// The dead letters are records of a compacted topic, which each process reads into memory.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// LettersConfig configures OpenLetters.
type LettersConfig struct {
	// Brokers are host:port of some brokers of the cluster. Required.
	Brokers []string
	// Topic is the topic of the letters. Required. OpenLetters creates it if it does not exist: one partition, compacted.
	Topic string
	// Route returns the key that a record had, for the replayed record; empty: null. Nil: its domain, or null where that
	// is the record's dispatch.Keyless. Required where GroupConfig.Domain is set. Put calls it and writes the result into
	// the letter.
	Route func(record dispatch.Record) string
	// Options are further options of the client: TLS, SASL, a logger. Those that this package sets override them.
	Options []kgo.Opt
}

// letters is a deadletter.Store in a topic.
type letters struct {
	cfg    LettersConfig
	lock   chan struct{} // a mutex that can be waited for with a context; guards the rest
	next   int64         // the offset to read next
	states map[deadletter.ID]*letterState
}

var _ deadletter.Store = (*letters)(nil)

// letterState is a letter's state in the topic.
type letterState struct {
	letter deadletter.Letter // without payload and headers
	known  bool              // letter has been read
	offset int64             // of the letter in the topic
	bad    error             // why the record at the letter's key is not a letter
	parked *string           // the note; nil: not parked
	gone   deadletter.Fate   // "": not gone
}

// The kinds of records in the topic. Each has its own key, so that compaction keeps the last of each kind, in any order.
const (
	kindLetter = "letter"
	kindParked = "parked"
	kindGone   = "gone"
)

// OpenLetters returns the dead letters in a topic, one for all partitions of all topics of the cluster, and creates the
// topic if it does not exist. It blocks until the brokers have answered, or ctx is done. Errors: *lease.InvalidError naming the
// field, also for a topic that would lose letters; or the client's.
//
// Each call connects and disconnects, so there is nothing to close, and takes several round trips. The first one reads
// the whole topic, later ones what is new in it. Each letter stays in memory without payload and headers, and the ID of each
// that is gone. Calls on one Store run one after another.
//
// A replay produces the record to its own partition, acknowledged by all in-sync replicas, and then removes the letter. It is
// at-least-once: a Replay that failed in between, or two concurrent ones, may append the record twice. A Discard in
// between may succeed although the record has been appended. A letter that two processes put at once is kept once. A
// record under a letter's key that is not a letter is an error of List, because it may hide one; a tombstone under that
// key removes it.
func OpenLetters(ctx context.Context, cfg LettersConfig) (deadletter.Store, error) {
	switch {
	case ctx == nil:
		return nil, invalidField("ctx", "nil", "a context")
	case len(cfg.Brokers) == 0 || slices.Contains(cfg.Brokers, ""):
		return nil, invalidField("LettersConfig.Brokers", fmt.Sprintf("%q", cfg.Brokers), "the address of at least one broker")
	case cfg.Topic == "":
		return nil, invalidField("LettersConfig.Topic", `""`, "the name of a topic")
	}
	if err := kgo.ValidateOpts(kgo.SeedBrokers(cfg.Brokers...)); err != nil {
		return nil, invalidField("LettersConfig.Brokers", err.Error(), "host:port")
	}
	if cfg.Route == nil {
		cfg.Route = keyOf
	}
	s := &letters{cfg: cfg, lock: make(chan struct{}, 1), states: map[deadletter.ID]*letterState{}}
	client, err := s.connect()
	if err != nil {
		return nil, invalidField("LettersConfig.Options", err.Error(), "options that kgo.NewClient accepts")
	}
	defer client.Close()
	if err := s.prepare(ctx, client); err != nil {
		return nil, err
	}
	return s, nil
}

// connect returns a client for one call.
func (s *letters) connect() (*kgo.Client, error) {
	// A call must end with its context. A record that is then produced twice is within the at-least-once promise.
	return kgo.NewClient(append(slices.Clone(s.cfg.Options), kgo.SeedBrokers(s.cfg.Brokers...),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.KeepControlRecords(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.AllowIdempotentProduceCancellation())...)
}

// keyOf is the default Route: the key of a record whose domain is its key.
func keyOf(r dispatch.Record) string {
	if r.Domain == dispatch.Keyless(r.Offset) {
		return ""
	}
	return r.Domain
}

// prepare creates the topic, or checks that the existing one keeps letters.
func (s *letters) prepare(ctx context.Context, client *kgo.Client) error {
	policy := "compact"
	setting := kmsg.NewCreateTopicsRequestTopicConfig()
	setting.Name, setting.Value = "cleanup.policy", &policy
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor, topic.Configs = s.cfg.Topic, 1, -1, append(topic.Configs, setting)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics, create.TimeoutMillis = append(create.Topics, topic), 10_000
	created, err := create.RequestWith(ctx, client)
	if err == nil && len(created.Topics) != 1 {
		err = errElsewhere
	}
	if err == nil {
		err = kerr.ErrorForCode(created.Topics[0].ErrorCode)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || !errors.Is(err, kerr.TopicAlreadyExists) && !errors.Is(err, kerr.TopicAuthorizationFailed):
		return s.failed(err)
	}

	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &s.cfg.Topic}}
	parts, err := meta.RequestWith(ctx, client)
	if err == nil && len(parts.Topics) != 1 {
		err = errElsewhere
	}
	if err == nil {
		err = kerr.ErrorForCode(parts.Topics[0].ErrorCode)
	}
	if err != nil {
		return s.failed(err)
	}
	if n := len(parts.Topics[0].Partitions); n != 1 {
		return invalidField("LettersConfig.Topic", fmt.Sprintf("%s with %d partitions", s.cfg.Topic, n), "a topic with one partition")
	}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic,
		ResourceName: s.cfg.Topic, ConfigNames: []string{"cleanup.policy"}}}
	settings, err := describe.RequestWith(ctx, client)
	if err == nil && len(settings.Resources) != 1 {
		err = errElsewhere
	}
	if err == nil {
		err = kerr.ErrorForCode(settings.Resources[0].ErrorCode)
	}
	if err != nil {
		return s.failed(err)
	}
	for _, c := range settings.Resources[0].Configs {
		if c.Name == "cleanup.policy" && c.Value != nil && *c.Value != policy {
			return invalidField("LettersConfig.Topic", s.cfg.Topic+" with cleanup.policy="+*c.Value,
				"cleanup.policy=compact; any other policy deletes letters by age")
		}
	}
	return nil
}

func (s *letters) failed(err error) error {
	return fmt.Errorf("leasekafka: dead letters in topic %s: %w", s.cfg.Topic, err)
}

func letterKey(kind string, id deadletter.ID) []byte { return []byte(kind + " " + id.String()) }

// current takes the lock, connects, reads the topic's new records, and calls use.
func (s *letters) current(ctx context.Context, use func(client *kgo.Client) error) error {
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.lock }()
	client, err := s.connect()
	if err != nil {
		return s.failed(err)
	}
	defer client.Close()
	log := place{s.cfg.Topic, 0}
	first, end, err := bounds(ctx, client, log)
	if err != nil {
		return s.failed(err)
	}
	if end < s.next { // the topic was deleted and created again
		s.next = 0
		clear(s.states)
	}
	for _, f := range s.states { // what a purge has taken away, no other process knows either
		f.known = f.known && f.offset >= first
	}
	if err := read(ctx, client, log, max(s.next, first), end, func(r *kgo.Record) error { s.applyLocked(r); return nil }); err != nil {
		return s.failed(err)
	}
	return use(client)
}

// bounds returns the first offset of a log and the one after the last.
func bounds(ctx context.Context, client *kgo.Client, log place) (first, end int64, err error) {
	of := map[string][]int32{log.topic: {log.partition}}
	firsts, err := list(ctx, client, earliest, of)
	if err != nil {
		return 0, 0, err
	}
	ends, err := list(ctx, client, latest, of)
	return firsts[log], ends[log], err
}

// read calls see for the records of a log from one offset, which it has, up to another. It ends because the last record of a log is
// never compacted away; the marker of a transaction may be the last one.
func read(ctx context.Context, client *kgo.Client, log place, from, end int64, see func(*kgo.Record) error) error {
	if from >= end {
		return nil
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{log.topic: {log.partition: kgo.NewOffset().At(from)}})
	defer client.RemoveConsumePartitions(map[string][]int32{log.topic: {log.partition}})
	for from < end {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return err
		}
		for records := fetches.RecordIter(); !records.Done() && from < end; {
			r := records.Next()
			if err := see(r); err != nil {
				return err
			}
			from = r.Offset + 1
		}
	}
	return nil
}

// applyLocked applies a record of the topic to the states. Records of other programs are ignored.
func (s *letters) applyLocked(r *kgo.Record) {
	if s.next = r.Offset + 1; r.Attrs.IsControl() {
		return
	}
	kind, text, _ := strings.Cut(string(r.Key), " ")
	id, err := deadletter.ParseID(text)
	if err != nil || kind != kindLetter && kind != kindParked && kind != kindGone {
		return
	}
	f := s.states[id]
	if f == nil {
		f = &letterState{}
		s.states[id] = f
	}
	switch {
	case kind == kindGone && r.Value != nil:
		*f = letterState{gone: deadletter.Fate(r.Value)}
	case f.gone != "":
	case kind == kindParked && r.Value == nil:
		f.parked = nil
	case kind == kindParked:
		note := string(r.Value)
		f.parked = &note
	case kind == kindLetter && r.Value == nil: // follows the record that it is gone, or an operator removed a damaged letter
		f.known, f.bad = false, nil
	case kind == kindLetter && f.known: // put twice: the first one counts
		f.offset = r.Offset
	case kind == kindLetter:
		f.offset = r.Offset
		f.letter, _, f.bad = decodeLetter(r)
		f.letter.Record.Payload, f.letter.Record.Headers, f.known = nil, nil, f.bad == nil
	}
}

// decodeLetter decodes the letter in a record of the topic. here: with its record.
func decodeLetter(r *kgo.Record) (letter deadletter.Letter, here bool, err error) {
	if letter, here, err = dlq.Decode(r.Value); err != nil {
		return letter, false, fmt.Errorf("offset %d: %w", r.Offset, err)
	}
	if want := letterKey(kindLetter, letter.ID()); !slices.Equal(want, r.Key) {
		return letter, false, fmt.Errorf("offset %d: %w: it is %q under the key %q",
			r.Offset, deadletter.ErrCorrupt, letter.ID().String(), r.Key)
	}
	return letter, here, nil
}

// findLocked returns the state of a letter that is not gone.
func (s *letters) findLocked(id deadletter.ID) (*letterState, error) {
	f := s.states[id]
	switch {
	case f != nil && f.gone != "":
		return nil, &deadletter.NotDeadError{ID: id, Fate: f.gone}
	case f != nil && f.bad != nil:
		return nil, s.failed(f.bad)
	case f == nil || !f.known:
		return nil, &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	}
	return f, nil
}

// marked returns the letter with its note.
func (f *letterState) marked() deadletter.Letter {
	letter := f.letter
	if letter.Parked, letter.Note = f.parked != nil, ""; letter.Parked {
		letter.Note = *f.parked
	}
	return letter
}

// produce appends records to the topic.
func (s *letters) produce(ctx context.Context, client *kgo.Client, records ...*kgo.Record) error {
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return s.failed(err)
	}
	return nil
}

func (s *letters) entry(kind string, id deadletter.ID, value []byte) *kgo.Record {
	return &kgo.Record{Topic: s.cfg.Topic, Key: letterKey(kind, id), Value: value}
}

// Put implements deadletter.Store.
func (s *letters) Put(ctx context.Context, letter deadletter.Letter) error {
	return s.current(ctx, func(client *kgo.Client) error {
		id := letter.ID()
		if f := s.states[id]; f != nil && (f.known || f.gone != "") {
			return nil
		}
		letter.Route = s.cfg.Route(letter.Record)
		err := s.produce(ctx, client, s.entry(kindLetter, id, dlq.Append(nil, letter)))
		if errors.Is(err, kerr.MessageTooLarge) {
			source, missing := sourceOf(ctx, client, letter)
			if missing != nil || source == nil { // it would be nowhere
				return errors.Join(err, missing)
			}
			letter.Size, letter.Route = len(letter.Record.Payload), "" // a replay takes the record's own key
			err = s.produce(ctx, client, s.entry(kindLetter, id, dlq.AppendElsewhere(nil, letter)))
		}
		if err == nil && letter.Parked {
			err = s.produce(ctx, client, s.entry(kindParked, id, []byte(letter.Note)))
		}
		return err
	})
}

// List implements deadletter.Store. It holds the letters of the filter without their payloads.
func (s *letters) List(ctx context.Context, filter deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		err := dlq.Check(filter)
		var all []*deadletter.Letter
		if err == nil {
			err = s.current(ctx, func(*kgo.Client) error {
				for _, f := range s.states {
					if f.bad != nil {
						return s.failed(f.bad)
					}
					if f.known && dlq.Matches(filter, f.letter) {
						letter := f.marked()
						all = append(all, &letter)
					}
				}
				return nil
			})
		}
		if err != nil {
			yield(deadletter.Letter{}, err)
			return
		}
		dlq.Sorted(all, filter)(yield)
	}
}

// Get implements deadletter.Store. It reads payload and headers from the topic.
func (s *letters) Get(ctx context.Context, id deadletter.ID) (letter deadletter.Letter, err error) {
	err = s.current(ctx, func(client *kgo.Client) error {
		letter, _, _, err = s.getLocked(ctx, client, id)
		return err
	})
	return letter, err
}

// getLocked reads a letter with its payload and headers. here: they are in it; otherwise source is the record, nil if its topic has
// deleted it.
func (s *letters) getLocked(ctx context.Context, client *kgo.Client, id deadletter.ID) (
	letter deadletter.Letter, here bool, source *kgo.Record, err error) {
	f, err := s.findLocked(id)
	if err != nil {
		return letter, false, nil, err
	}
	letter = f.marked()
	entry, err := recordAt(ctx, client, place{s.cfg.Topic, 0}, f.offset)
	if err == nil && entry == nil {
		err = fmt.Errorf("the letter %q at offset %d is not there any more", id.String(), f.offset)
	}
	var whole deadletter.Letter
	if err == nil {
		whole, here, err = decodeLetter(entry)
	}
	if err != nil {
		return deadletter.Letter{}, false, nil, s.failed(err)
	}
	if letter.Record.Payload, letter.Record.Headers = whole.Record.Payload, whole.Record.Headers; here {
		return letter, true, nil, nil
	}
	if source, err = sourceOf(ctx, client, letter); err != nil {
		return deadletter.Letter{}, false, nil, s.failed(fmt.Errorf("the record of %q: %w", id.String(), err))
	}
	if source != nil {
		letter.Record.Payload = source.Value
		for _, h := range source.Headers {
			letter.Record.Headers = append(letter.Record.Headers, dispatch.Header{Key: h.Key, Value: h.Value})
		}
	}
	return letter, false, source, nil
}

// sourceOf returns the record of a letter in its topic; nil: it is not there any more.
func sourceOf(ctx context.Context, client *kgo.Client, l deadletter.Letter) (*kgo.Record, error) {
	at, err := placeOf(l.ID())
	if err != nil {
		return nil, err
	}
	r, err := recordAt(ctx, client, at, l.Record.Offset)
	if r != nil && !r.Timestamp.Equal(l.Record.Time) {
		r = nil // that of a topic that was made anew
	}
	return r, err
}

// recordAt returns the record at an offset of a log; nil: it is not there any more.
func recordAt(ctx context.Context, client *kgo.Client, log place, offset int64) (found *kgo.Record, err error) {
	first, end, err := bounds(ctx, client, log)
	if err != nil || offset < first || offset >= end {
		return nil, err
	}
	return found, read(ctx, client, log, offset, offset+1, func(r *kgo.Record) error {
		if r.Offset == offset && !r.Attrs.IsControl() {
			found = r
		}
		return nil
	})
}

// placeOf returns the log of a letter's record.
func placeOf(id deadletter.ID) (place, error) {
	topic, number, _ := cutLast(id.Partition, "/")
	partition, err := strconv.ParseInt(number, 10, 32)
	if err != nil || partition < 0 || topic == "" {
		return place{}, invalidField("Letter.Partition", strconv.Quote(id.Partition),
			"topic/number, such as orders/3, so that it can be replayed")
	}
	return place{topic, int32(partition)}, nil
}

// Park implements deadletter.Store.
func (s *letters) Park(ctx context.Context, id deadletter.ID, note string) error {
	return s.change(ctx, id, s.entry(kindParked, id, []byte(clip.Text(note))))
}

// Unpark implements deadletter.Store.
func (s *letters) Unpark(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, s.entry(kindParked, id, nil))
}

// Discard implements deadletter.Store.
func (s *letters) Discard(ctx context.Context, id deadletter.ID) error {
	return s.change(ctx, id, s.gone(id, deadletter.Discarded)...)
}

// gone returns the records that remove a letter. The one that says it is gone comes first.
func (s *letters) gone(id deadletter.ID, fate deadletter.Fate) []*kgo.Record {
	return []*kgo.Record{s.entry(kindGone, id, []byte(fate)), s.entry(kindLetter, id, nil), s.entry(kindParked, id, nil)}
}

func (s *letters) change(ctx context.Context, id deadletter.ID, records ...*kgo.Record) error {
	return s.current(ctx, func(client *kgo.Client) error {
		if _, err := s.findLocked(id); err != nil {
			return err
		}
		return s.produce(ctx, client, records...)
	})
}

// Replay implements deadletter.Store.
func (s *letters) Replay(ctx context.Context, id deadletter.ID) error {
	return s.current(ctx, func(client *kgo.Client) error {
		at, err := placeOf(id)
		if err != nil {
			return err
		}
		letter, here, source, err := s.getLocked(ctx, client, id)
		switch {
		case err != nil:
			return err
		case !here && source == nil:
			return s.failed(fmt.Errorf("the record of %q was too large for a letter, and %s has deleted it", id.String(), at.name()))
		}
		record := dlq.Replay(letter)
		again := &kgo.Record{Topic: at.topic, Partition: at.partition, Value: record.Payload}
		switch {
		case source != nil:
			again.Key = source.Key
		case letter.Route != "":
			again.Key = []byte(letter.Route)
		}
		for _, h := range record.Headers {
			again.Headers = append(again.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if err := client.ProduceSync(ctx, again).FirstErr(); err != nil {
			return fmt.Errorf("leasekafka: %s: %w", id.Partition, err)
		}
		return s.produce(ctx, client, s.gone(id, deadletter.Replayed)...)
	})
}

// cutLast cuts a text around the last sep.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}
