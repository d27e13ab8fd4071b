// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The suite of dead letters runs on a bucket, with a stream for the replays.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/dlq"
	"github.com/stopbank/stopbank/lease/internal/testkit/lettertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// dialer adapts a lettertest.Dial to the client.
type dialer struct{ dial lettertest.Dial }

func (d dialer) Dial(network, address string) (net.Conn, error) { return d.dial(ctx, network, address) }

// letterSubject returns a subject for any key.
func letterSubject(r dispatch.Record) string { return fmt.Sprintf("orders.%x", r.Domain) }

func letterDesk(t testing.TB) lettertest.Desk {
	url := single(t, t.TempDir(), 0).ClientURL()
	nc := connect(t, url)
	js := orders(t, nc, 0, 1)
	desk := lettertest.Desk{
		Partition: "orders-3", Once: true,
		Source: func(t testing.TB) (records []dispatch.Record) {
			s := must(js.Stream(ctx, "ORDERS"))(t)
			for seq := range s.CachedInfo().State.LastSeq {
				m := must(s.GetMsg(ctx, seq+1))(t)
				r := dispatch.Record{Payload: m.Data}
				must(fmt.Sscanf(m.Subject, "orders.%x", &r.Domain))(t)
				for key, values := range m.Header {
					for _, value := range values {
						if !strings.HasPrefix(key, "Nats-") {
							r.Headers = append(r.Headers, dispatch.Header{Key: key, Value: []byte(value)})
						}
					}
				}
				records = append(records, r)
			}
			return records
		},
		Open: func(t testing.TB, dial lettertest.Dial) deadletter.Store {
			own := must(nats.Connect(url, nats.SetCustomDialer(dialer{dial}), nats.NoReconnect(),
				nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))(t)
			t.Cleanup(own.Close)
			return must(leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: own, Bucket: "desk", Stream: "ORDERS",
				Route: letterSubject}))(t)
		},
	}
	return desk
}

func TestPropertyLetters(t *testing.T) { lettertest.Run(t, letterDesk) }

// A replayed record passes the stream's transform into its partition, without headers that are instructions to the server.
func TestLettersThroughATransform(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := must(jetstream.New(nc))(t)
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*",
			Destination: "orders.{{partition(12,1)}}.{{wildcard(1)}}"},
	}))(t)
	m := &nats.Msg{Subject: "orders.customer-7", Data: []byte("a pair of boots"), Header: nats.Header{"Trace": {"t1"}}}
	must(js.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(0), jetstream.WithMsgID("first")))(t)
	all := source(t, nc, nil)
	record := fetch(t, all, 1, 1)[0]
	letters, err := leasenats.OpenLetters(ctx, leasenats.LettersConfig{
		Conn: nc, Bucket: "dead-letters", Stream: "ORDERS",
		Route: func(r dispatch.Record) string { return "orders." + r.Domain[strings.LastIndexByte(r.Domain, '.')+1:] },
	})
	noError(t, err)
	var cfg dispatch.Config
	cfg.DeadLetter = deadletter.Keep(letters)

	noError(t, cfg.DeadLetter(ctx, dispatch.DeadLetter{Partition: "group-9", Record: record}))
	// The replaying process configures neither stream nor subject.
	desk := must(leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: "dead-letters"}))(t)
	noError(t, desk.Replay(ctx, deadletter.ID{Partition: "group-9", Offset: 1}))
	again := fetch(t, all, 2, 1)[0]
	if again.Domain != record.Domain || string(again.Payload) != "a pair of boots" {
		t.Errorf("replayed as %s: %q, was %s", again.Domain, again.Payload, record.Domain)
	}
	raw := must(stream.GetMsg(ctx, 2))(t)
	if got := fmt.Sprint(raw.Header["Trace"], raw.Header[dlq.ReplayOf], raw.Header["Nats-Expected-Last-Sequence"],
		len(raw.Header)); got != "[t1] [group-9@1] [] 4" {
		t.Errorf("headers %s: %v", got, raw.Header)
	}
}

func TestLettersRefuse(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 0, 1)
	letters := must(leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: "desk", Stream: "ORDERS"}))(t)
	reader, err := leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: "desk"})
	if err != nil {
		t.Fatal(err)
	}
	_, noBucket := leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc})
	for want, err := range map[string]error{
		"LettersConfig.Bucket": noBucket,
		"LettersConfig.Stream": reader.Put(ctx, deadletter.Letter{}),
	} {
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "leasenats."+want {
			t.Errorf("%s: %v", want, err)
		}
	}

	// A subject that no stream listens on, and one that another stream does.
	must(js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}))(t)
	for offset, subject := range []string{"nobody", "other"} {
		l := deadletter.Letter{Partition: "p", Record: dispatch.Record{Domain: subject, Offset: int64(offset)}}
		noError(t, letters.Put(ctx, l))
		if err := letters.Replay(ctx, l.ID()); !is[*leasenats.UnreachableError](err) || !strings.Contains(err.Error(), subject) {
			t.Errorf("replayed to %s: %v", subject, err)
		}
		if _, err := letters.Get(ctx, l.ID()); err != nil {
			t.Errorf("after a replay that failed: %v", err)
		}
	}

	// A letter that is too large for a message is rejected, and nothing of it is stored.
	large := deadletter.Letter{Partition: "p", Record: dispatch.Record{Offset: 9, Payload: make([]byte, 1<<20)}}
	if err := letters.Put(ctx, large); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a letter of a megabyte and more: %v", err)
	}

	// A key that another program wrote or deleted is an error.
	kv := must(js.KeyValue(ctx, "desk"))(t)
	must(kv.PutString(ctx, "dead-letters.d.p.5", "hello"))(t)
	_, err = letters.Get(ctx, deadletter.ID{Partition: "p", Offset: 5})
	if !errors.Is(err, deadletter.ErrCorrupt) || !strings.Contains(err.Error(), ", key ") {
		t.Errorf("a foreign value: %v", err)
	}
	var seen []error
	for _, err := range letters.List(ctx, deadletter.Filter{}) {
		seen = append(seen, err)
	}
	if len(seen) != 1 || !errors.Is(seen[0], deadletter.ErrCorrupt) || !strings.Contains(seen[0].Error(), ", key ") {
		t.Errorf("listed beside a foreign value: %v", seen)
	}
	if !slices.ContainsFunc([]error{context.Canceled}, func(want error) bool {
		done, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := range letters.List(done, deadletter.Filter{Partition: "q"}) {
			return errors.Is(err, want)
		}
		return false
	}) {
		t.Error("listed with a context that is done")
	}
}

// A record as large as the server takes leaves no room for what its letter has besides: the letter leaves it where it is.
func TestLettersOfTheLargestRecords(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := orders(t, nc, 0, 1)
	desk := must(leasenats.OpenLetters(ctx, leasenats.LettersConfig{Conn: nc, Bucket: "desk", Stream: "ORDERS"}))(t)
	for name, m := range map[string]*nats.Msg{
		"payload": {Subject: "orders.0.a", Data: make([]byte, nc.MaxPayload())},
		"headers": {Subject: "orders.0.b", Header: nats.Header{"H": {strings.Repeat("h", 60_000)}}, Data: make([]byte, nc.MaxPayload()-60_100)},
	} {
		ack := must(js.PublishMsg(ctx, m))(t)
		raw := must(must(js.Stream(ctx, "ORDERS"))(t).GetMsg(ctx, ack.Sequence))(t)
		r := dispatch.Record{Domain: m.Subject, Offset: int64(ack.Sequence), Payload: m.Data, Time: raw.Time}
		for key, values := range m.Header {
			r.Headers = append(r.Headers, dispatch.Header{Key: key, Value: []byte(values[0])})
		}
		if err := deadletter.Keep(desk)(ctx, dispatch.DeadLetter{Partition: "orders-0", Record: r, Err: errors.New("bad")}); err != nil {
			t.Fatalf("L15: %s: %v", name, err)
		}
		id := deadletter.ID{Partition: "orders-0", Offset: r.Offset}
		check := func(when string, there bool) {
			t.Helper()
			listed := 0
			for l, err := range desk.List(ctx, deadletter.Filter{Domain: m.Subject}) {
				if listed++; err != nil || l.Size != len(m.Data) {
					t.Errorf("L15: %s, %s: listed with %d bytes, %v", name, when, l.Size, err)
				}
			}
			l, err := desk.Get(ctx, id)
			if err != nil || listed != 1 || l.Failure != "bad" || (len(l.Record.Payload) == len(m.Data) && len(l.Record.Headers) == len(m.Header)) != there {
				t.Errorf("L15: %s, %s: %d listed; %q with %d bytes and %d headers, %v", name, when, listed, l.Failure, len(l.Record.Payload),
					len(l.Record.Headers), err)
			}
		}
		check("kept", true)
		if err := errors.Join(desk.Park(ctx, id, "why"), desk.Unpark(ctx, id)); err != nil {
			t.Errorf("L15: %s: %v", name, err)
		}
		check("parked", true)
		if err := must(js.Stream(ctx, "ORDERS"))(t).DeleteMsg(ctx, ack.Sequence); err != nil {
			t.Fatal(err)
		}
		if check("deleted", false); desk.Replay(ctx, id) == nil {
			t.Errorf("L15: %s: a record that is not there any more was replayed", name)
		}
		if err := desk.Discard(ctx, id); err != nil {
			t.Errorf("L15: %s: %v", name, err)
		}
	}
}
