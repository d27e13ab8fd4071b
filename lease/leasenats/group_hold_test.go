// SPDX-License-Identifier: Apache-2.0

package leasenats

// Members join, leave, freeze and lose the server in virtual time, with a fake of the bucket. A synctest bubble ends only when no
// goroutine is left.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// key is the group's key on the fake server.
type key struct {
	mu       sync.Mutex // guards all below
	value    []byte
	revision uint64
}

// line is a member's connection to the key: the methods of a bucket that Hold uses.
type line struct {
	jetstream.KeyValue
	key *key

	mu     sync.Mutex // guards all below
	away   bool       // calls get no answer
	losing bool       // one call in three gets no answer, whether applied or not
	frozen chan struct{}
	random *rand.Rand
}

type value struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (v value) Value() []byte    { return v.value }
func (v value) Revision() uint64 { return v.revision }

// call calls f, or loses the request or the reply, as the connection's state says.
func (l *line) call(ctx context.Context, f func() error) error {
	time.Sleep(time.Millisecond)
	l.mu.Lock()
	away, lost := l.away, l.losing && l.random.IntN(10) == 0
	reaches := !away && (!lost || l.random.IntN(2) == 0)
	stop := l.random.IntN(2) == 0 // before it is sent, or before the answer is read
	l.mu.Unlock()
	if stop {
		l.stand()
	}
	var err error
	if reaches {
		l.key.mu.Lock()
		err = f()
		l.key.mu.Unlock()
	}
	l.stand()
	if away || lost {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// stand waits while the process is frozen, regardless of ctx.
func (l *line) stand() {
	l.mu.Lock()
	frozen := l.frozen
	l.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (l *line) Get(ctx context.Context, _ string) (entry jetstream.KeyValueEntry, err error) {
	err = l.call(ctx, func() error {
		if l.key.revision == 0 {
			return jetstream.ErrKeyNotFound
		}
		entry = value{value: l.key.value, revision: l.key.revision}
		return nil
	})
	return entry, err
}

func (l *line) Update(ctx context.Context, _ string, value []byte, revision uint64) (uint64, error) {
	err := l.call(ctx, func() error {
		if l.key.revision != revision {
			return &jetstream.APIError{ErrorCode: codeConflict}
		}
		l.key.value, l.key.revision = value, revision+1
		return nil
	})
	return revision + 1, err
}

func (l *line) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return l.Update(ctx, key, value, 0)
}

func (l *line) set(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }

// world is a group of 8 partitions and the works running on them.
type world struct {
	*testing.T
	key     *key
	mu      sync.Mutex            // guards all below
	working map[string][]*running // by partition
	frozen  map[string]bool       // members whose process is frozen
	causes  []error               // of works that ended
}

type running struct {
	member string
	frozen bool // it was, and may have been overtaken
}

const session = 10 * time.Second

type joined struct {
	*line
	name string
	told []error
	stop func() error
}

// join starts a member. Each of its works takes some time to return.
func (w *world) join(name string, returns time.Duration) *joined {
	j := &joined{line: &line{key: w.key, random: rand.New(rand.NewPCG(1, uint64(len(name))))}, name: name}
	cfg := GroupConfig{Stream: "S", Subject: "s.*", Partitions: 8, Bucket: "b", Group: "g", Session: session,
		OnError: func(err error) { j.told = append(j.told, err) }}
	g := &Group{cfg: cfg, kv: j.line, store: &store{bucket: "b"}, key: "group-g"}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			w.begin(name, p.Name)
			<-ctx.Done()
			time.Sleep(returns)
			w.end(name, p.Name, context.Cause(ctx))
		})
	}()
	j.stop = func() error { cancel(); return <-ended }
	return j
}

func (w *world) begin(name, partition string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.working[partition] {
		if !other.frozen {
			w.Errorf("%s begins to work on %s, where %s works", name, partition, other.member)
		}
	}
	w.working[partition] = append(w.working[partition], &running{member: name})
}

func (w *world) end(name, partition string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working[partition] = slices.DeleteFunc(w.working[partition], func(r *running) bool { return r.member == name })
	w.causes = append(w.causes, cause)
}

func (w *world) freeze(j *joined) (thaw func()) {
	frozen := make(chan struct{})
	j.set(func() { j.frozen = frozen })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen[j.name] = true
	for _, all := range w.working {
		for _, r := range all {
			r.frozen = r.frozen || r.member == j.name
		}
	}
	return func() {
		w.mu.Lock()
		delete(w.frozen, j.name)
		w.mu.Unlock()
		j.set(func() { j.frozen = nil })
		close(frozen)
	}
}

// shares returns how many partitions each member that is not frozen works on. It fails if a partition has no work.
func (w *world) shares() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	shares, worked := map[string]int{}, 0
	for _, all := range w.working {
		for _, r := range all {
			if !w.frozen[r.member] {
				shares[r.member]++
				worked++
			}
		}
	}
	if worked != 8 {
		w.Errorf("%d partitions are worked on: %v", worked, w.working)
	}
	return shares
}

// expect waits for some time, and then for fair shares among the named.
func (w *world) expect(what string, wait time.Duration, names ...string) {
	w.Helper()
	time.Sleep(wait)
	synctest.Wait()
	shares := w.shares()
	for _, name := range names {
		if n := shares[name]; n < 8/len(names) || n > (8+len(names)-1)/len(names) || len(shares) != len(names) {
			w.Errorf("%s: %v among %v", what, shares, names)
		}
	}
}

// ends returns how many works have ended since the last call: given back, lost.
func (w *world) ends() (given, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cause := range w.causes {
		switch {
		case errors.Is(cause, dispatch.ErrLost) && errors.Unwrap(cause) != nil:
			lost++
		case errors.Is(cause, context.Canceled):
			given++
		default:
			w.Errorf("ended by %v", cause)
		}
	}
	w.causes = nil
	return given, lost
}

func bubble(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		f(&world{T: t, key: &key{}, working: map[string][]*running{}, frozen: map[string]bool{}})
	})
}

// stop makes all members leave at once.
func (w *world) stop(js ...*joined) {
	w.Helper()
	var group sync.WaitGroup
	for _, j := range js {
		group.Go(func() {
			if err := j.stop(); err != nil {
				w.Errorf("%s: %v", j.name, err)
			}
		})
	}
	group.Wait()
}

func (w *world) record() groupRecord {
	w.key.mu.Lock()
	defer w.key.mu.Unlock()
	r, wrong := decodeGroup(&GroupConfig{}, w.key.value)
	if wrong != "" {
		w.Error(wrong)
	}
	return r
}

// The last member leaves at the moment when the next one joins.
func TestGroupLastLeavesFirstJoins(t *testing.T) {
	bubble(t, func(w *world) {
		last := w.join("0", 0)
		for i := range 20 {
			w.expect("alone", 3*time.Second, fmt.Sprint(i))
			next := make(chan *joined)
			go func() {
				time.Sleep(time.Duration(i%4) * time.Millisecond)
				next <- w.join(fmt.Sprint(i+1), 0)
			}()
			w.stop(last)
			last = <-next
		}
		w.stop(last)
	})
}

// The server is away for longer than a session: all members stop working, none is removed, and all resume their partitions.
func TestGroupServerAway(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.join("a", time.Second), w.join("bb", time.Second)
		w.expect("two", 5*time.Second, "a", "bb")
		w.ends()
		away := func(away bool) {
			for _, j := range []*joined{a, b} {
				j.set(func() { j.away = away })
			}
		}
		away(true)
		w.expect("a short time", session-3*time.Second, "a", "bb")
		time.Sleep(3 * session)
		if given, lost := w.ends(); given != 0 || lost != 8 {
			t.Errorf("a long time: %d given back, %d lost", given, lost)
		}
		members := w.record().Members
		away(false)
		w.expect("back again", 8*time.Second, "a", "bb")
		for name := range w.record().Members {
			if _, ok := members[name]; !ok || len(members) != 2 {
				t.Error("a member was taken out")
			}
		}
		// A member that alone is cut off loses its partitions before another gets them, and removes no member when it is back.
		a.set(func() { a.away = true })
		w.expect("one cut off", session+4*time.Second, "bb")
		a.set(func() { a.away = false })
		w.expect("and back", 10*time.Second, "a", "bb")
		w.stop(a, b)
	})
}

// A final error ends Hold after its works have returned.
func TestGroupCannotGoOn(t *testing.T) {
	isForeign := func(err error) bool { return err != nil && strings.Contains(err.Error(), ", key ") }
	for name, c := range map[string]struct {
		value string
		want  func(error) bool
	}{
		"rubbish":    {"rubbish", isForeign},
		"newer":      {`{"format":2}`, isForeign},
		"other":      {`{"format":1,"stream":"S","subject":"s.*","partitions":9,"members":{}}`, is[*lease.InvalidError]},
		"other name": {`{"format":1,"stream":"T","subject":"s.*","partitions":8,"members":{}}`, is[*lease.InvalidError]},
	} {
		bubble(t, func(w *world) {
			a := w.join("a", time.Second)
			w.expect("before", 3*time.Second, "a")
			w.key.mu.Lock()
			w.key.value = []byte(c.value)
			w.key.mu.Unlock()
			time.Sleep(3 * time.Second)
			if err := a.stop(); !c.want(err) {
				t.Errorf("%s: %v", name, err)
			}
			if given, lost := w.ends(); given != 0 || lost != 8 {
				t.Errorf("%s: %d given back, %d lost", name, given, lost)
			}
		})
	}
	bubble(t, func(w *world) { // the key is deleted: the group forms anew
		a := w.join("a", time.Second)
		w.expect("before", 3*time.Second, "a")
		w.key.mu.Lock()
		w.key.revision = 0
		w.key.mu.Unlock()
		w.expect("after", 5*time.Second, "a")
		w.stop(a)
	})
	var invalid *lease.InvalidError
	g := &Group{}
	for field, err := range map[string]error{
		"Group": g.Hold(context.Background(), func(context.Context, dispatch.Partition) {}),
		"ctx":   g.Hold(nil, func(context.Context, dispatch.Partition) {}), //nolint:staticcheck // refused, not a panic
		"work":  g.Hold(context.Background(), nil),
	} {
		if !errors.As(err, &invalid) || invalid.Field != "leasenats."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Random faults for a day of virtual time. Two members work on one partition only if one of them has lost it or is frozen, and
// in the end the shares are fair.
func TestGroupRandomDay(t *testing.T) {
	seeds := uint64(4)
	if os.Getenv("STOPBANK_THOROUGH") != "" {
		seeds = 100
	}
	for seed := range seeds {
		bubble(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 14))
			present := map[string]*joined{}
			thaws := map[string]func(){}
			for n := range 150 {
				time.Sleep(time.Duration(r.Int64N(int64(2 * session))))
				names := make([]string, 0, len(present))
				for name := range present {
					names = append(names, name)
				}
				slices.Sort(names)
				if len(names) == 0 || len(names) < 6 && r.IntN(4) == 0 {
					name := strconv.Itoa(n)
					present[name] = w.join(name, time.Duration(r.Int64N(int64(2*time.Second))))
					continue
				}
				of := names[r.IntN(len(names))]
				j := present[of]
				switch r.IntN(4) {
				case 0:
					if thaws[of] == nil {
						w.stop(j)
						delete(present, of)
					}
				case 1:
					if thaw := thaws[of]; thaw == nil {
						thaws[of] = w.freeze(j)
					} else {
						thaw()
						delete(thaws, of)
					}
				case 2:
					j.set(func() { j.away = !j.away })
				case 3:
					j.set(func() { j.losing = !j.losing })
				}
			}
			for _, thaw := range thaws {
				thaw()
			}
			for _, j := range present {
				j.set(func() { j.away, j.losing = false, false })
			}
			w.expect(fmt.Sprint("seed ", seed), 10*session, slices.Collect(maps.Keys(present))...)
			w.stop(slices.Collect(maps.Values(present))...)
		})
	}
}

// The ledgers of a group's partitions share a bucket, but no key.
func TestGroupStoresAreApart(t *testing.T) {
	g := &Group{cfg: GroupConfig{Subject: "s.*", Group: "g", Partitions: 16}, store: (&store{bucket: "b"}).named("g")}
	for _, number := range []int{3, 12} {
		name := g.partitionName(number)
		of := reflect.ValueOf(*g.store.named(name))
		for i := range of.NumField() {
			if field := of.Type().Field(i); field.Type.Kind() == reflect.String && field.Name != "bucket" &&
				!strings.Contains(of.Field(i).String(), name) {
				t.Errorf("%s: %s is %q", name, field.Name, of.Field(i))
			}
		}
		partition, _ := g.partition(number, &records{})
		source := partition.Source.(*source)
		if want := fmt.Sprint("s.", number); partition.Name != name || source.cfg.Subjects[0] != want ||
			!strings.Contains(source.key, name) {
			t.Errorf("%s: subject %s, position %s", partition.Name, source.cfg.Subjects[0], source.key)
		}
	}
}

// is reports whether err is, or wraps, an E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
