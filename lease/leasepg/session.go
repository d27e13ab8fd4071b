// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is a member's place in its group: a session of the server, the advisory locks that it has, and the queries by which
// it stays alive.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/episode"
	"github.com/stopbank/stopbank/lease/internal/group"
)

// session is a group.Server: a connection, and after its end the next one.
type session struct {
	*Group
	trouble *episode.Episode // from a failure to the next round that succeeds

	conn   *pgx.Conn       // nil: none
	until  time.Time       // the server keeps the locks until then at least
	member int32           // this member's own lock; 0: none
	locks  map[string]bool // the partitions whose locks the session has
}

const (
	take = `SELECT pg_try_advisory_lock($1, $2)`
	give = `SELECT pg_advisory_unlock($1, $2)`
	look = `SELECT classid::bigint, objid::bigint, pid FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid::bigint IN ($1, $2)
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// Round implements group.Server. After an error there is no connection, and so no lock.
func (s *session) Round(ctx context.Context, leaving bool, works map[string]bool) (holds []string, share int, err error) {
	if s.conn == nil {
		if leaving {
			return nil, 0, nil
		}
		answers := s.expect(s.trouble, "the server")
		s.conn, err = s.connect(ctx)
		answers()
		if err != nil {
			s.conn = nil
			return nil, 0, err
		}
		s.until = time.Now().Add(s.cfg.Session)
	}
	share, err = s.round(leaving, works)
	if err != nil {
		return nil, 0, s.lost(err)
	}
	for _, name := range s.cfg.Names {
		if s.locks[name] {
			holds = append(holds, name)
		}
	}
	return holds, share, nil
}

// Expired implements group.Server.
func (s *session) Expired() bool { return s.conn == nil || !time.Now().Before(s.until) }

// Final implements group.Server.
func (s *session) Final(err error) bool { return is[*lease.InvalidError](err) }

// Wait implements group.Server. It listens meanwhile, so that a session which the server ends is noticed at once.
func (s *session) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.beat())
	defer cancel()
	if s.conn == nil {
		<-ctx.Done()
		return nil
	}
	err := s.conn.PgConn().WaitForNotification(ctx)
	if err == nil || pgconn.Timeout(err) || ctx.Err() != nil && !s.conn.IsClosed() {
		return nil
	}
	return s.lost(err)
}

// lost hangs up after an error of the connection.
func (s *session) lost(err error) error {
	s.hangUp()
	return fmt.Errorf("leasepg: group %s: the session is lost: %w", s.cfg.Group, err)
}

// hangUp ends the session and with it its locks.
func (s *session) hangUp() {
	if s.conn != nil {
		drop(s.conn)
	}
	s.conn, s.member = nil, 0
	clear(s.locks)
}

// round gives back what has returned, looks at who holds what, and takes this member's share of what is free.
func (s *session) round(leaving bool, works map[string]bool) (share int, err error) {
	switch {
	case leaving && s.member != 0: // the others need not wait for the last work to divide the rest
		err = s.unlock(s.memberOf, s.member)
		s.member = 0
	case !leaving && s.member == 0:
		err = s.register()
	}
	for name := range s.locks {
		if works[name] && err == nil {
			err = s.unlock(s.class, s.key[name])
			delete(s.locks, name)
		}
	}
	var v view
	if err == nil {
		v, err = s.look()
	}
	if err != nil || leaving {
		return 0, err
	}
	me := s.conn.PgConn().PID()
	if _, member := v.holds[me]; !member {
		return 0, fmt.Errorf("backend %d is not among the members any more", me)
	}
	total := 0
	for _, n := range v.holds {
		total += n
	}
	var free []string
	for _, name := range s.cfg.Names {
		if !v.held[name] {
			total++
			if _, busy := works[name]; !busy {
				free = append(free, name)
			}
		}
	}
	share = group.Share(v.holds, me, total)
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	for _, name := range free {
		if len(s.locks) >= share {
			break
		}
		taken, err := s.lock(s.class, s.key[name])
		if err != nil {
			return 0, err
		}
		if taken {
			s.locks[name] = true
		}
	}
	return share, nil
}

// register takes a member's lock, under a number that nobody has.
func (s *session) register() error {
	for {
		member := 1 + rand.Int32N(1<<31-1)
		if taken, err := s.lock(s.memberOf, member); taken || err != nil {
			s.member = member
			return err
		}
	}
}

// view is who holds what, as one statement saw it.
type view struct {
	holds map[uint32]int // partitions of each member, by its backend
	held  map[string]bool
}

// look reads the locks of the group.
func (s *session) look() (view, error) {
	v := view{holds: map[uint32]int{}, held: map[string]bool{}}
	members := map[uint32]bool{}
	err := s.ask(func(ctx context.Context) error {
		rows, err := s.conn.Query(ctx, look, s.class, s.memberOf)
		if err != nil {
			return err
		}
		var class, object int64
		var pid uint32
		_, err = pgx.ForEachRow(rows, []any{&class, &object, &pid}, func() error {
			if class == int64(s.memberOf) {
				members[pid] = true
				v.holds[pid] += 0
			} else if name, known := s.name[int32(object)]; known {
				v.held[name] = true
				v.holds[pid]++
			}
			return nil
		})
		return err
	})
	for pid := range v.holds { // who leaves has no share
		if !members[pid] {
			delete(v.holds, pid)
		}
	}
	return v, err
}

func (s *session) lock(class, object int32) (taken bool, err error) {
	err = s.ask(func(ctx context.Context) error { return s.conn.QueryRow(ctx, take, class, object).Scan(&taken) })
	return taken, err
}

func (s *session) unlock(class, object int32) error {
	return s.ask(func(ctx context.Context) error {
		_, err := s.conn.Exec(ctx, give, class, object)
		return err
	})
}

// ask makes a call on the server, which has to answer before the session may have ended; the answer prolongs it.
func (s *session) ask(call func(context.Context) error) error {
	sent := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), s.until)
	defer cancel()
	if err := call(ctx); err != nil {
		return err
	}
	s.until = sent.Add(s.cfg.Session)
	return nil
}
