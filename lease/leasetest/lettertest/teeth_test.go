package lettertest

// This file runs the suite on the store in memory, and breaks that on purpose, one way at a time.

import (
	"context"
	"errors"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasetest/internal/witness"
)

// plain is a desk in memory. Its stores ask a server that only answers before each call, so that there is a network to break.
func plain(t testing.TB, change func(deadletter.Store, *log) deadletter.Store) Desk {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go echo(listener)
	source := &log{}
	memory := &deadletter.Memory{Append: source.append}
	return Desk{
		Partition: "orders/3", Once: true, Network: true, Source: func(testing.TB) []dispatch.Record { return source.all() },
		Open: func(t testing.TB, dial Dial) deadletter.Store {
			conn, err := dial(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			r := &remote{Store: memory, conn: conn}
			if change != nil {
				r.Store = change(memory, source)
			}
			return r
		},
	}
}

func echo(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 1)
			for {
				if _, err := conn.Read(b); err != nil {
					_ = conn.Close()
					return
				}
				_, _ = conn.Write(b)
			}
		}()
	}
}

// log is a source.
type log struct {
	mu      sync.Mutex
	records []dispatch.Record
}

func (l *log) append(_ context.Context, _ string, r dispatch.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *log) all() []dispatch.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

// remote is a store behind a connection: it asks before a call, and after it.
type remote struct {
	deadletter.Store
	mu   sync.Mutex
	conn net.Conn
}

func (r *remote) ask() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := []byte{'?'}
	if _, err := r.conn.Write(b); err != nil {
		return err
	}
	_, err := r.conn.Read(b)
	return err
}

func (r *remote) around(call func() error) error {
	if err := r.ask(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return r.ask()
}

func (r *remote) Put(ctx context.Context, l deadletter.Letter) error {
	return r.around(func() error { return r.Store.Put(ctx, l) })
}

func (r *remote) Park(ctx context.Context, id deadletter.ID, note string) error {
	return r.around(func() error { return r.Store.Park(ctx, id, note) })
}

func (r *remote) Replay(ctx context.Context, id deadletter.ID) error {
	return r.around(func() error { return r.Store.Replay(ctx, id) })
}

func (r *remote) Discard(ctx context.Context, id deadletter.ID) error {
	return r.around(func() error { return r.Store.Discard(ctx, id) })
}

// TestPropertyL15_ThePlainStorePasses: rapid's machine among others.
func TestPropertyL15_ThePlainStorePasses(t *testing.T) {
	Run(t, func(t testing.TB) Desk { return plain(t, nil) })
}

// faulty are stores, each wrong in one way.
type (
	overwrites struct{ deadletter.Store } // Put
	revives    struct{ deadletter.Store } // Put after the letter is gone
	twice      struct {
		deadletter.Store
		to *log
	}
	swallows struct{ deadletter.Store } // Replay drops the letter and appends nothing
	unsorted struct{ deadletter.Store }
	mixes    struct{ deadletter.Store } // fates
	forgets  struct{ deadletter.Store } // notes
	limits   struct{ deadletter.Store }
	shuns    struct{ deadletter.Store } // does not replay what is parked
	early    struct {
		deadletter.Store
		dropped *sync.Map
	}
)

func (s overwrites) Put(ctx context.Context, l deadletter.Letter) error {
	if m, ok := s.Store.(*deadletter.Memory); ok {
		if _, err := m.Get(ctx, l.ID()); err == nil {
			return m.Discard(ctx, l.ID())
		}
	}
	return s.Store.Put(ctx, l)
}

func (s revives) Put(ctx context.Context, l deadletter.Letter) error {
	if _, err := s.Get(ctx, l.ID()); errors.Is(err, deadletter.ErrNotDead) {
		l.Record.Offset += 1000
	}
	return s.Store.Put(ctx, l)
}

func (s twice) Replay(ctx context.Context, id deadletter.ID) error {
	l, err := s.Get(ctx, id)
	if err == nil {
		err = s.to.append(ctx, "", l.Replay())
	}
	return errors.Join(err, s.Store.Replay(ctx, id))
}

func (s swallows) Replay(ctx context.Context, id deadletter.ID) error {
	return s.Discard(ctx, id)
}

func (s unsorted) List(ctx context.Context, f deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	var all []deadletter.Letter
	for l, err := range s.Store.List(ctx, f) {
		if err != nil {
			return s.Store.List(ctx, f)
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b deadletter.Letter) int { return strings.Compare(a.ID().String(), b.ID().String()) })
	return func(yield func(deadletter.Letter, error) bool) {
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func (s mixes) Discard(ctx context.Context, id deadletter.ID) error {
	err := s.Store.Discard(ctx, id)
	var not *deadletter.NotDeadError
	if errors.As(err, &not) {
		not.Fate = deadletter.Unknown
	}
	return err
}

func (s forgets) Park(ctx context.Context, id deadletter.ID, _ string) error {
	return s.Store.Park(ctx, id, "")
}

func (s limits) List(ctx context.Context, f deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	if f.Limit > 0 {
		f.Limit++
	}
	return s.Store.List(ctx, f)
}

func (s shuns) Replay(ctx context.Context, id deadletter.ID) error {
	if l, err := s.Get(ctx, id); err == nil && l.Parked {
		return errors.New("it is parked")
	}
	return s.Store.Replay(ctx, id)
}

// early forgets the letter before the record is appended, as two steps in the wrong order do when nobody makes the second one.
func (s early) Replay(ctx context.Context, id deadletter.ID) error {
	if _, seen := s.dropped.LoadOrStore(id, true); !seen && id.Offset%5 == 0 {
		_ = s.Discard(ctx, id)
		return errors.New("died")
	}
	return s.Store.Replay(ctx, id)
}

func TestTheSuiteHasTeeth(t *testing.T) {
	witness.Quiet(t)
	var dropped sync.Map
	for name, fault := range map[string]struct {
		by     string // checks that have to notice, among others
		change func(deadletter.Store, *log) deadletter.Store
	}{
		"a second Put takes the first away": {"Values Machine", func(s deadletter.Store, _ *log) deadletter.Store { return overwrites{s} }},
		"a Put revives":                     {"Replays AtOnce Machine", func(s deadletter.Store, _ *log) deadletter.Store { return revives{s} }},
		"Replay appends twice":              {"Replays Machine AtOnce Broken", func(s deadletter.Store, l *log) deadletter.Store { return twice{s, l} }},
		"Replay appends nothing":            {"Replays Machine Broken", func(s deadletter.Store, _ *log) deadletter.Store { return swallows{s} }},
		"the order is that of texts":        {"List ReplayAll", func(s deadletter.Store, _ *log) deadletter.Store { return unsorted{s} }},
		"what is gone was never there":      {"Replays Machine", func(s deadletter.Store, _ *log) deadletter.Store { return mixes{s} }},
		"a note is lost":                    {"Replays Machine Broken", func(s deadletter.Store, _ *log) deadletter.Store { return forgets{s} }},
		"one more than the limit":           {"List", func(s deadletter.Store, _ *log) deadletter.Store { return limits{s} }},
		"what is parked stays":              {"Replays", func(s deadletter.Store, _ *log) deadletter.Store { return shuns{s} }},
		"it drops before it appends":        {"ReplayAll Broken", func(s deadletter.Store, _ *log) deadletter.Store { return early{s, &dropped} }},
	} {
		for _, c := range checks() {
			if !slices.Contains(strings.Fields(fault.by), c.name) {
				continue
			}
			dropped.Clear()
			if witness.Watch(t, func(t testing.TB) { c.run(t, plain(t, fault.change)) }) == "" {
				t.Errorf("%s: %s does not notice", name, c.name)
			}
		}
	}
}
