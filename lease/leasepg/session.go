package leasepg

// This file is one session of a member: its locks, its works, and the questions by which it stays alive.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/episode"
)

// session is what lies between a connection and its end. Only serve's goroutine uses the connection.
type session struct {
	*Ownership
	conn    *pgx.Conn
	joining *episode.Episode // from a failure until the member has joined
	base    context.Context  // of every work
	work    func(context.Context, dispatch.Partition)
	until   time.Time // the server keeps the locks until then at least

	mu    sync.Mutex          // guards all below; nothing foreign runs under it
	works map[string]*holding // by partition
	poke  context.CancelFunc  // ends the wait; nil while there is none

	opening map[string]*episode.Episode // by partition: whether Open fails; only serve's goroutine uses the map
}

// holding is a partition whose lock is held.
type holding struct {
	end      context.CancelCauseFunc
	giving   bool // it was asked back; one that returns by itself is in no hurry, or one that cannot be opened would be begun in a loop
	returned bool // work has: the lock can go
}

const (
	take = `SELECT pg_try_advisory_lock($1, $2)`
	give = `SELECT pg_advisory_unlock($1, $2)`
	look = `SELECT classid::bigint, objid::bigint, pid FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid::bigint IN ($1, $2)
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// serve holds partitions until the session breaks, which is the error, or ctx is done and all has been given back. No work is running
// when it returns.
func (s *session) serve(ctx context.Context) error {
	s.until = time.Now().Add(s.cfg.Lease)
	member, err := s.register(ctx)
	registered := err == nil
	for err == nil {
		leaving := ctx.Err() != nil
		if leaving && registered {
			registered = false // the others need not wait for the last work to divide the rest
			err = s.ask(func(ctx context.Context) error { return s.exec(ctx, give, s.memberOf, member) })
		}
		if err == nil {
			err = s.round(leaving)
		}
		if leaving && len(s.works) == 0 {
			break
		}
		if err == nil {
			err = s.wait(ctx)
		}
	}
	if err != nil {
		err = fmt.Errorf("leasepg: group %s: the session is lost: %w", s.cfg.Group, err)
		if ctx.Err() == nil {
			s.joining.Tell(s.cfg.OnError, err) // works may take their time to return
		}
	}
	drop(s.conn)
	s.abandon(err)
	return err
}

// register takes a member's lock, under a number that nobody has.
func (s *session) register(ctx context.Context) (member int32, err error) {
	for taken := false; !taken; {
		member = rand.Int32()
		err := s.ask(func(ctx context.Context) error { return s.conn.QueryRow(ctx, take, s.memberOf, member).Scan(&taken) })
		if err != nil {
			return 0, err
		}
	}
	return member, ctx.Err()
}

// ask makes a call on the server, which has to answer before the session may have ended; the answer prolongs it.
func (s *session) ask(call func(context.Context) error) error {
	sent := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), s.until)
	defer cancel()
	if err := call(ctx); err != nil {
		return err
	}
	s.until = sent.Add(s.cfg.Lease)
	return nil
}

func (s *session) exec(ctx context.Context, sql string, args ...any) error {
	_, err := s.conn.Exec(ctx, sql, args...)
	return err
}

// round gives back what can be given back, looks at who holds what, and takes or asks back what is to change.
func (s *session) round(leaving bool) error {
	s.mu.Lock()
	var returned []string
	for p, h := range s.works {
		if h.returned {
			returned = append(returned, p)
		}
	}
	s.mu.Unlock()
	for _, p := range returned {
		if err := s.ask(func(ctx context.Context) error { return s.exec(ctx, give, s.class, s.key[p]) }); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.works, p)
		s.mu.Unlock()
	}
	var v view
	err := s.ask(func(ctx context.Context) (err error) {
		v, err = s.look(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if leaving {
		s.askBack(len(s.cfg.Partitions))
		return nil
	}
	if _, member := v.counts[v.me]; !member {
		return fmt.Errorf("backend %d is not among the members any more", v.me)
	}
	free := s.free(v)
	more, less := v.shares(len(free))
	s.askBack(less)
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	for _, p := range free {
		if more == 0 {
			break
		}
		var taken bool
		if err := s.ask(func(ctx context.Context) error { return s.conn.QueryRow(ctx, take, s.class, s.key[p]).Scan(&taken) }); err != nil {
			return err
		}
		if taken {
			more--
			s.begin(p)
		}
	}
	return nil
}

// look reads the locks of the group.
func (s *session) look(ctx context.Context) (view, error) {
	v := view{counts: map[uint32]int{}, me: s.conn.PgConn().PID(), held: map[string]bool{}}
	rows, err := s.conn.Query(ctx, look, s.class, s.memberOf)
	if err != nil {
		return v, err
	}
	holds := map[uint32]int{}
	var class, object int64
	var pid uint32
	_, err = pgx.ForEachRow(rows, []any{&class, &object, &pid}, func() error {
		if class == int64(s.memberOf) {
			v.counts[pid] += 0
		} else if name, known := s.name[int32(object)]; known {
			v.held[name] = true
			holds[pid]++
		}
		return nil
	})
	for pid := range v.counts {
		v.counts[pid] = holds[pid]
	}
	return v, err
}

// begin starts work on a partition whose lock was taken.
func (s *session) begin(name string) {
	ctx, end := context.WithCancelCause(s.base)
	h := &holding{end: end}
	s.mu.Lock()
	s.works[name] = h
	s.mu.Unlock()
	opening := s.opening[name]
	if opening == nil {
		opening = new(episode.Episode)
		s.opening[name] = opening
	}
	open := func(ctx context.Context) (dispatch.Source, lease.Ledger, error) {
		opens := s.expect(opening, "Open of partition "+name)
		p, err := s.cfg.Open(ctx, name)
		opens()
		if err != nil {
			err = fmt.Errorf("leasepg: partition %s is not opened: %w", name, err)
			opening.Tell(s.cfg.OnError, err)
			return nil, nil, err
		}
		opening.Tell(s.cfg.OnError, nil)
		return p.Source, p.Ledger, nil
	}
	go func() {
		source, ledger, err := open(ctx)
		p := dispatch.Partition{Name: name, Source: source, Ledger: ledger}
		if err != nil {
			p.Open = open // the work says that it is stalled
		}
		s.work(ctx, p)
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		h.returned = true
		if h.giving && s.poke != nil {
			s.poke()
		}
	}()
}

// askBack sees to it that n works have been asked to return.
func (s *session) askBack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.works {
		if h.giving {
			n--
		}
	}
	for _, h := range s.works {
		if n > 0 && !h.giving {
			n--
			h.giving = true
			h.end(nil)
		}
	}
}

// wait lasts until the next round is due: a beat, or less if work that was asked back has returned or ctx is done. It listens meanwhile, so that
// a session which the server ends is noticed at once.
func (s *session) wait(ctx context.Context) error {
	pause, cancel := context.WithTimeout(context.Background(), s.beat())
	defer cancel()
	if ctx.Err() == nil {
		stop := context.AfterFunc(ctx, cancel)
		defer stop()
	}
	s.mu.Lock()
	s.poke = cancel
	for _, h := range s.works {
		if h.giving && h.returned {
			cancel()
		}
	}
	s.mu.Unlock()
	err := s.conn.PgConn().WaitForNotification(pause)
	s.mu.Lock()
	s.poke = nil
	s.mu.Unlock()
	if err == nil || pgconn.Timeout(err) || pause.Err() != nil && !s.conn.IsClosed() {
		return nil
	}
	return err
}

// abandon ends the works that there are, as lost, and waits for them.
func (s *session) abandon(why error) {
	for {
		pause, cancel := context.WithCancel(context.Background())
		running := 0
		s.mu.Lock()
		s.poke = cancel
		for name, h := range s.works {
			if !h.returned {
				running++
				h.giving = true
				h.end(dispatch.Lost(name, why))
			}
		}
		s.mu.Unlock()
		if running == 0 {
			cancel()
			return
		}
		<-pause.Done()
	}
}
