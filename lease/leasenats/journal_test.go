// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Ledgers that are written per window: whose they are, and what is refused by name.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/journal"
	"github.com/stopbank/stopbank/lease/leasenats"
)

// journals returns a server, and what opens a ledger there.
func journals(t *testing.T) (nc *nats.Conn, js jetstream.JetStream, open func(name string) (*journal.Ledger, error)) {
	t.Helper()
	nc = connect(t, single(t, t.TempDir(), 0).ClientURL())
	return nc, must(jetstream.New(nc))(t), func(name string) (*journal.Ledger, error) {
		l, err := leasenats.OpenJournal(t.Context(), leasenats.StoreConfig{Conn: nc, Bucket: "b"}, name, time.Minute,
			lease.Config{MaxRetries: 3})
		if err == nil {
			t.Cleanup(func() { _ = l.Close(context.Background()) })
		}
		return l, err
	}
}

// A claim ends the earlier ones, and its tokens are above theirs; what is not written under it is refused by name.
func TestJournalClaims(t *testing.T) {
	_, js, open := journals(t)
	first := must(open("p"))(t)
	a := must(first.TryAcquire(t.Context(), "A", 1))(t)
	must(first.Fail(t.Context(), "A", a.Lease.Token))(t)
	second := must(open("p"))(t)
	if _, err := first.Offer(t.Context(), "B", 2); !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, journal.ErrClaimed) {
		t.Errorf("L17: a former owner's Offer: %v", err)
	}
	later := must(second.Reclaim(t.Context(), "A", a.Lease.Token))(t)
	if later.Token <= a.Lease.Token || later.RetryCount != 1 {
		t.Errorf("L17: %+v after %+v", later, a.Lease)
	}
	if other := must(open("q"))(t); must(other.TryAcquire(t.Context(), "A", 1))(t).Status != lease.Acquired {
		t.Error("two partitions share a journal")
	}

	stream := must(js.Stream(t.Context(), "JOURNAL_b"))(t)
	noError(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("stopbank.journal.b.p")))
	if _, err := second.Offer(t.Context(), "B", 2); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("a journal that was purged: %v", err)
	}
	must(js.Publish(t.Context(), "stopbank.journal.b.x", []byte("somebody else's")))(t)
	if _, err := open("x"); err == nil || !strings.Contains(err.Error(), "stopbank.journal.b.x is no entry") {
		t.Errorf("a message that is no entry: %v", err)
	}
}

// A journal is as long as what the next owner has to know.
func TestJournalsStayShort(t *testing.T) {
	_, js, open := journals(t)
	l := must(open("p"))(t)
	const records = 60_000
	for i := range int64(records) {
		domain := fmt.Sprint("k", i%50)
		a := must(l.TryAcquire(t.Context(), domain, i))(t)
		must(l.Succeed(t.Context(), domain, a.Lease.Token))(t)
		if i%1000 == 999 {
			noError(t, l.Compact(t.Context(), i-100))
		}
	}
	noError(t, l.Close(t.Context()))
	if size := must(must(js.Stream(t.Context(), "JOURNAL_b"))(t).Info(t.Context()))(t).State.Bytes; size > 120<<10 {
		t.Errorf("%d bytes of journal after %d records", size, records)
	}
	next := must(open("p"))(t)
	for i := int64(records - 150); i < records; i++ {
		if a := must(next.TryAcquire(t.Context(), fmt.Sprint("k", i%50), i))(t); a.Status != lease.AlreadyProcessed {
			t.Fatalf("L17: %d: %+v", i, a)
		}
	}
}

// A stream that would lose entries is rejected by name.
func TestJournalsThatLoseEntries(t *testing.T) {
	_, js, open := journals(t)
	must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "JOURNAL_b", Subjects: []string{"stopbank.journal.b.>"},
		Discard: jetstream.DiscardNew, MaxAge: time.Hour}))(t)
	var invalid *lease.InvalidError
	if _, err := open("p"); !errors.As(err, &invalid) || !strings.Contains(invalid.Field, "stream JOURNAL_b: MaxAge") {
		t.Errorf("%v", err)
	}
}

// All members of a group write their ledgers in the same way.
func TestLayoutsAreNotMixed(t *testing.T) {
	nc, js, _ := journals(t)
	must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s.>"}}))(t)
	for _, first := range []bool{false, true} {
		hold := func(journal bool) error {
			g := must(leasenats.OpenGroup(t.Context(), leasenats.GroupConfig{Conn: nc, Stream: "s", Subject: "s.*.>", Partitions: 1,
				Bucket: fmt.Sprint("begun-", first), Session: time.Second, Journal: journal}))(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			return g.Hold(ctx, func(ctx context.Context, _ dispatch.Partition) { cancel() })
		}
		noError(t, hold(first))
		var invalid *lease.InvalidError
		if err := hold(!first); !errors.As(err, &invalid) || invalid.Field != "leasenats.GroupConfig.Journal" {
			t.Errorf("a group begun with Journal %t, and a member with %t: %v", first, !first, err)
		}
		noError(t, hold(first))
	}
}
