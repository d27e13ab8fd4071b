// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// The suite of dead letters runs on a topic, with another one for the replays.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/lettertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

// records returns what a partition holds.
func (k *kafka) records(t testing.TB, partition int32) (all []*kgo.Record) {
	t.Helper()
	client := must(kgo.NewClient(kgo.SeedBrokers(k.brokers...), k.dialer(), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: {partition: kgo.NewOffset().AtStart()}})))(t)
	defer client.Close()
	marker := &kgo.Record{Topic: k.topic, Partition: partition, Key: []byte("marker")}
	noError(t, k.admin.ProduceSync(t.Context(), marker).FirstErr())
	for {
		fetches := client.PollFetches(t.Context())
		noError(t, fetches.Err())
		for _, r := range fetches.Records() {
			if r.Offset == marker.Offset {
				return all
			}
			if string(r.Key) != "marker" {
				all = append(all, r)
			}
		}
	}
}

func letterDesk(t testing.TB) lettertest.Desk {
	k := onLoopback(t, 4)
	return lettertest.Desk{
		Partition: k.topic + "/3",
		Source: func(t testing.TB) (records []dispatch.Record) {
			for _, r := range k.records(t, 3) {
				record := dispatch.Record{Domain: string(r.Key), Payload: r.Value}
				for _, h := range r.Headers {
					record.Headers = append(record.Headers, dispatch.Header(h))
				}
				records = append(records, record)
			}
			return records
		},
		Open: func(t testing.TB, dial lettertest.Dial) deadletter.Store {
			return letters(t, k, kgo.Dialer(dial), kgo.DisableClientMetrics(), kgo.MetadataMinAge(20*time.Millisecond),
				kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
		},
	}
}

func letters(t testing.TB, k *kafka, options ...kgo.Opt) deadletter.Store {
	t.Helper()
	s := must(leasekafka.OpenLetters(t.Context(), leasekafka.LettersConfig{Brokers: k.brokers, Topic: k.topic + "-dead",
		Options: append([]kgo.Opt{k.dialer()}, options...)}))(t)
	return s
}

// In real time: a client that cannot begin to produce tries again without a pause, so virtual time would stand still.
func TestPropertyLetters(t *testing.T) {
	t.Parallel()
	lettertest.Run(t, letterDesk)
}

// A record goes back to its partition under its key, wherever the key would send it, and one without a key stays without.
func TestLettersKeepTheKey(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 4)
		s, err := leasekafka.OpenLetters(t.Context(), leasekafka.LettersConfig{
			Brokers: k.brokers, Topic: k.topic + "-dead", Options: []kgo.Opt{k.dialer()},
			Route: func(r dispatch.Record) string { return strings.TrimPrefix(r.Domain, "tenant/") },
		})
		if err != nil {
			t.Fatal(err)
		}
		put := func(s deadletter.Store, offset int64, domain string) {
			l := deadletter.Letter{Partition: k.topic + "/2", Record: dispatch.Record{Domain: domain, Offset: offset}}
			noError(t, s.Put(t.Context(), l))
		}
		put(s, 1, "tenant/ann")
		other := letters(t, k)
		put(other, 2, "bob")
		put(other, 3, dispatch.Keyless(3))
		if report, err := deadletter.ReplayAll(t.Context(), other, deadletter.Filter{}); err != nil || report.Replayed != 3 {
			t.Fatal(report, err)
		}
		var got []string
		for _, r := range k.records(t, 2) {
			got = append(got, fmt.Sprintf("%s/%v/%v/%s", r.Key, r.Key == nil, r.Value == nil,
				strings.TrimPrefix(string(r.Headers[0].Value), k.topic)))
		}
		if want := []string{"ann/false/true//2@1", "bob/false/true//2@2", "/true/true//2@3"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestLettersRefuse(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, noBrokers := leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Topic: "x"})
		_, noPort := leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Brokers: []string{"kafka:http"}, Topic: "x"})
		_, noTopic := leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Brokers: k.brokers})
		_, twoPartitions := leasekafka.OpenLetters(ctx, leasekafka.LettersConfig{Brokers: k.brokers, Topic: k.topic,
			Options: []kgo.Opt{k.dialer()}})
		s := letters(t, k)
		invalid := deadletter.Letter{Partition: "no number"}
		noError(t, s.Put(ctx, invalid))
		for i, c := range []struct {
			field string
			err   error
		}{
			{"LettersConfig.Brokers", noBrokers}, {"LettersConfig.Brokers", noPort}, {"LettersConfig.Topic", noTopic},
			{"LettersConfig.Topic", twoPartitions}, {"Letter.Partition", s.Replay(ctx, invalid.ID())},
		} {
			var invalid *lease.InvalidError
			if !errors.As(c.err, &invalid) || invalid.Field != "leasekafka."+c.field {
				t.Errorf("%d: %v, want one about %s", i, c.err, c.field)
			}
		}
		if _, err := s.Get(ctx, invalid.ID()); err != nil {
			t.Errorf("after a replay that was refused: %v", err)
		}

		// A record that is not a letter is an error of each List until it is removed; the other letters can be used.
		damaged := &kgo.Record{Topic: k.topic + "-dead", Key: []byte("letter a/1@5"), Value: []byte("x")}
		noError(t, k.admin.ProduceSync(ctx, &kgo.Record{Topic: k.topic + "-dead", Key: []byte("unrelated"), Value: []byte("x")},
			damaged).FirstErr())
		list := func() error {
			for _, err := range s.List(ctx, deadletter.Filter{}) {
				return err
			}
			return errors.New("nothing")
		}
		for range 2 {
			if err := list(); !errors.Is(err, deadletter.ErrCorrupt) {
				t.Errorf("listed beside a damaged letter: %v", err)
			}
			if _, err := s.Get(ctx, deadletter.ID{Partition: "a/1", Offset: 5}); !errors.Is(err, deadletter.ErrCorrupt) {
				t.Errorf("a damaged letter: %v", err)
			}
			if _, err := s.Get(ctx, invalid.ID()); err != nil {
				t.Errorf("beside a damaged letter: %v", err)
			}
		}
		noError(t, k.admin.ProduceSync(ctx, &kgo.Record{Topic: damaged.Topic, Key: damaged.Key}).FirstErr())
		if err := list(); err != nil {
			t.Errorf("after a damaged letter was taken away: %v", err)
		}
	})
}

// purge deletes the records of a topic below an offset; -1: all.
func (k *kafka) purge(t *testing.T, topic string, below int64) {
	t.Helper()
	part := kmsg.NewDeleteRecordsRequestTopicPartition()
	part.Offset = below
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, part)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, of), 5000
	resp, err := req.RequestWith(t.Context(), k.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What others do to the topic stops no call: a transaction whose marker is the last thing in it, and a purge.
func TestLettersGoOnBehindAMarkerAndAPurge(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, k *kafka){
		"nothing": func(*testing.T, *kafka) {},
		"marker": func(t *testing.T, k *kafka) {
			client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.TransactionalID("other"), k.dialer())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			err = errors.Join(client.BeginTransaction(), client.ProduceSync(t.Context(), &kgo.Record{Topic: k.topic + "-dead"}).FirstErr(),
				client.EndTransaction(t.Context(), kgo.TryCommit))
			if err != nil {
				t.Fatal(err)
			}
		},
		"purge": func(t *testing.T, k *kafka) { k.purge(t, k.topic+"-dead", -1) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				k := start(t, 1)
				old := letters(t, k)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				l := deadletter.Letter{Partition: k.topic + "/0", At: time.Now(), Record: dispatch.Record{Domain: "a", Offset: 1}}
				noError(t, old.Put(ctx, l))
				happens(t, k)
				first := l.ID()
				want := []int64{1, 2}
				if name == "purge" {
					want = want[1:]
				}
				l.Record.Offset = 2
				if err := old.Put(ctx, l); err != nil {
					t.Errorf("L15: Put: %v", err)
				}
				for who, s := range map[string]deadletter.Store{"old": old, "new": letters(t, k)} {
					var got []int64
					for l, err := range s.List(ctx, deadletter.Filter{}) {
						if err != nil {
							t.Errorf("L15: List: %v", err)
						}
						got = append(got, l.Record.Offset)
					}
					if _, err := s.Get(ctx, first); !slices.Equal(got, want) || errors.Is(err, deadletter.ErrNotDead) != (name == "purge") {
						t.Errorf("L15: %s: %v, want %v; the first: %v", who, got, want, err)
					}
				}
			})
		})
	}
}

// A record as large as the broker takes leaves no room for what its letter has besides: the letter leaves it where it is.
func TestLettersOfTheLargestRecords(t *testing.T) {
	const most = 1_000_012 - 100 // of a batch of kgo's with one record
	for name, record := range map[string]*kgo.Record{
		"payload": {Key: []byte("evil"), Value: bytes.Repeat([]byte("x"), most)},
		"key":     {Key: bytes.Repeat([]byte("k"), most)},
		"header":  {Key: []byte("evil"), Headers: []kgo.RecordHeader{{Key: "h", Value: bytes.Repeat([]byte("h"), most)}}},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				k := start(t, 1)
				k.produce(t, record)
				k.produce(t, of(20, 5, 1)...)
				s := letters(t, k)
				g := newRegister()
				m := run(t, k.config(), dispatch.Config{DeadLetter: deadletter.Keep(s),
					Handler: func(_ context.Context, job dispatch.Job) error {
						if job.Record.Offset == 0 {
							return fmt.Errorf("%w: bad", dispatch.ErrPermanent)
						}
						g.write(job, 0)
						return nil
					}})
				time.Sleep(time.Minute)
				m.stop(t)
				if floor := k.committed(t, 1)[0]; g.count() != 20 || floor != 21 {
					t.Errorf("L15: %d of 20 others are done, the floor is %d", g.count(), floor)
				}
				listed := 0
				for l, err := range s.List(t.Context(), deadletter.Filter{}) {
					if listed++; err != nil || l.Size != len(record.Value) {
						t.Errorf("L15: List: %d bytes, %v", l.Size, err)
					}
				}
				id := deadletter.ID{Partition: k.topic + "/0", Offset: 0}
				l, err := s.Get(t.Context(), id)
				if err != nil || listed != 1 || !bytes.Equal(l.Record.Payload, record.Value) || len(l.Record.Headers) != len(record.Headers) {
					t.Errorf("L15: %d listed; Get: %d bytes, %d headers, %v", listed, len(l.Record.Payload), len(l.Record.Headers), err)
				}
				if name == "payload" { // none of them fits with the header of a replay: they can be discarded, or their topic given room
					if err := s.Replay(t.Context(), id); !errors.Is(err, kerr.MessageTooLarge) {
						t.Errorf("L15: Replay: %v", err)
					}
				}
				k.purge(t, k.topic, -1)
				l, err = s.Get(t.Context(), id)
				if err != nil || l.Record.Payload != nil || l.Size != len(record.Value) {
					t.Errorf("L15: Get of what is not there any more: %d bytes, %v", len(l.Record.Payload), err)
				}
				if err := s.Replay(t.Context(), id); err == nil || errors.Is(err, deadletter.ErrNotDead) {
					t.Errorf("L15: Replay of what is not there any more: %v", err)
				}
				if err := s.Discard(t.Context(), id); err != nil {
					t.Errorf("L15: Discard: %v", err)
				}
			})
		})
	}
}
