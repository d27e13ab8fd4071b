package leasenats

// This file is the record that the members of a group share, and what each of them makes of it: who is there, who holds what,
// and how much is a fair share.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stopbank/stopbank/lease/internal/group"
)

// groupRecord is the value of the group's key, as JSON, so that an operator can read it.
type groupRecord struct {
	Format     int                    `json:"format"`
	Stream     string                 `json:"stream"`
	Subject    string                 `json:"subject"`
	Partitions int                    `json:"partitions"`
	Members    map[string]memberState `json:"members"` // by their names, each drawn by a Hold
}

// memberState is a member's place in the record. Nobody but that member writes to it, until it is taken out.
type memberState struct {
	Beat    uint64 `json:"beat"`              // grows with each write: a sign of life
	Session int64  `json:"session_ms"`        // how long it may stay the same
	Leaving bool   `json:"leaving,omitempty"` // gives back what it holds, and takes nothing
	Holds   []int  `json:"holds"`             // partitions, rising; each is held by one member at most

	written json.RawMessage // as it was read: a newer program's may say more, and goes on as it is until that writes it again
}

func (s *memberState) UnmarshalJSON(value []byte) error {
	type plain memberState
	s.written = slices.Clone(value)
	return json.Unmarshal(value, (*plain)(s))
}

func (s memberState) MarshalJSON() ([]byte, error) {
	if s.written != nil {
		return s.written, nil
	}
	type plain memberState
	return json.Marshal(plain(s))
}

const groupFormat = 1

// decodeGroup reads a record. What is wrong with it is said in words; a record that was not there is an empty one of cfg.
func decodeGroup(cfg *GroupConfig, value []byte) (r groupRecord, wrong string) {
	if value == nil {
		return groupRecord{Format: groupFormat, Stream: cfg.Stream, Subject: cfg.Subject, Partitions: cfg.Partitions,
			Members: map[string]memberState{}}, ""
	}
	var format struct{ Format int }
	if err := json.Unmarshal(value, &format); err != nil {
		return r, "not a group: " + err.Error()
	}
	if format.Format != groupFormat {
		return r, fmt.Sprintf("a group of format %d; this version reads format %d", format.Format, groupFormat)
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, "not a group: " + err.Error()
	}
	if r.Partitions < 1 || r.Partitions > mostPartitions {
		return r, fmt.Sprintf("a group of %d partitions", r.Partitions)
	}
	held := map[int]bool{}
	for name, s := range r.Members {
		if session := time.Duration(s.Session) * time.Millisecond; s.Session > mostSession.Milliseconds() || session < leastSession {
			return r, fmt.Sprintf("member %q has a session of %d ms", name, s.Session)
		}
		for i, p := range s.Holds {
			if p < 0 || p >= r.Partitions || held[p] || i > 0 && s.Holds[i-1] >= p {
				return r, fmt.Sprintf("member %q cannot hold partition %d", name, p)
			}
			held[p] = true
		}
	}
	if r.Members == nil {
		r.Members = map[string]memberState{}
	}
	return r, ""
}

// encode is the inverse of decodeGroup.
func (r groupRecord) encode() []byte {
	value, _ := json.Marshal(r) // strings and numbers
	return value
}

// agrees rejects a member that would share out something else.
func (r groupRecord) agrees(cfg *GroupConfig) error {
	for _, c := range []struct {
		field     string
		ours, its any
	}{{"Stream", cfg.Stream, r.Stream}, {"Subject", cfg.Subject, r.Subject}, {"Partitions", cfg.Partitions, r.Partitions}} {
		if c.ours != c.its {
			return invalidField("GroupConfig."+c.field, c.ours, fmt.Sprint(c.its, ", as the other members of the group have it"))
		}
	}
	return nil
}

// free are the partitions that nobody holds, rising.
func (r groupRecord) free() (free []int) {
	held := make([]bool, r.Partitions)
	for _, s := range r.Members {
		for _, p := range s.Holds {
			held[p] = true
		}
	}
	for p := range held {
		if !held[p] {
			free = append(free, p)
		}
	}
	return free
}

// share is how many partitions the member should hold; those who leave hold none.
func (r groupRecord) share(name string) int {
	staying := map[string]int{}
	for n, s := range r.Members {
		if !s.Leaving {
			staying[n] = len(s.Holds)
		}
	}
	return group.Share(staying, name, r.Partitions)
}

// next is the record after a move of the member: who is silent is out, what the member gives back is free, and it takes what
// is free, up to its share. started are the partitions that it has work of from before, and whether that has returned: those it
// takes no sooner than it has given them back. It joins with empty hands, because others may be about to join as well.
func (r groupRecord) next(name string, session time.Duration, leaving bool, silent []string, started map[int]bool) groupRecord {
	old, joined := r.Members[name]
	r.Members = maps.Clone(r.Members)
	for _, n := range silent {
		delete(r.Members, n)
	}
	s := memberState{Beat: old.Beat + 1, Session: session.Milliseconds(), Leaving: leaving, Holds: []int{}}
	for _, p := range old.Holds {
		if !started[p] {
			s.Holds = append(s.Holds, p)
		}
	}
	r.Members[name] = s
	if leaving && len(s.Holds) == 0 {
		delete(r.Members, name)
	}
	if leaving || !joined {
		return r
	}
	room := r.share(name) - len(s.Holds)
	for _, p := range r.free() {
		if _, busy := started[p]; !busy && room > 0 {
			s.Holds = append(s.Holds, p)
			room--
		}
	}
	slices.Sort(s.Holds)
	r.Members[name] = s
	return r
}
