// SPDX-License-Identifier: Apache-2.0

package leasenats

// The record of a group names its members and the partitions that each of them holds.

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
	Members    map[string]memberState `json:"members"` // by name, which each Hold draws at random
}

// memberState is a member's entry in the record. Only that member changes it; the others may remove it.
type memberState struct {
	Beat    uint64 `json:"beat"`              // the heartbeat: grows with each write
	Session int64  `json:"session_ms"`        // how long Beat may stay the same, in milliseconds
	Leaving bool   `json:"leaving,omitempty"` // gives its partitions back and takes none
	Holds   []int  `json:"holds"`             // partitions, ascending; each is held by one member at most

	raw json.RawMessage // as it was read, to keep fields that a newer version of this package wrote
}

func (s *memberState) UnmarshalJSON(value []byte) error {
	type plain memberState
	s.raw = slices.Clone(value)
	return json.Unmarshal(value, (*plain)(s))
}

func (s memberState) MarshalJSON() ([]byte, error) {
	if s.raw != nil {
		return s.raw, nil
	}
	type plain memberState
	return json.Marshal(plain(s))
}

// groupFormat is that of a group whose members write ledgers per record, and inJournals of one with GroupConfig.Journal, which
// a version without that does not read.
const (
	groupFormat = 1
	inJournals  = 2
)

// format is that of cfg's group.
func (cfg *GroupConfig) format() int {
	if cfg.Journal {
		return inJournals
	}
	return groupFormat
}

// decodeGroup decodes a record; wrong says why it cannot. For a nil value it returns an empty record with cfg's partitions.
func decodeGroup(cfg *GroupConfig, value []byte) (r groupRecord, wrong string) {
	if value == nil {
		return groupRecord{Format: cfg.format(), Stream: cfg.Stream, Subject: cfg.Subject, Partitions: cfg.Partitions,
			Members: map[string]memberState{}}, ""
	}
	var format struct{ Format int }
	if err := json.Unmarshal(value, &format); err != nil {
		return r, "not a group: " + err.Error()
	}
	if format.Format != groupFormat && format.Format != inJournals {
		return r, fmt.Sprintf("a group of format %d; this version reads formats %d and %d", format.Format, groupFormat, inJournals)
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
	value, _ := json.Marshal(r) // cannot fail: strings and numbers
	return value
}

// agrees rejects a configuration with another stream, subject or number of partitions.
func (r groupRecord) agrees(cfg *GroupConfig) error {
	for _, c := range []struct {
		field     string
		want, got any
	}{{"Stream", cfg.Stream, r.Stream}, {"Subject", cfg.Subject, r.Subject}, {"Partitions", cfg.Partitions, r.Partitions},
		{"Journal", cfg.Journal, r.Format == inJournals}} {
		if c.want != c.got {
			return invalidField("GroupConfig."+c.field, c.want, fmt.Sprint(c.got, ", as the other members of the group have it"))
		}
	}
	return nil
}

// free returns the partitions that no member holds, ascending.
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

// share returns how many partitions the member should hold; leaving members get none.
func (r groupRecord) share(name string) int {
	staying := map[string]int{}
	for n, s := range r.Members {
		if !s.Leaving {
			staying[n] = len(s.Holds)
		}
	}
	return group.Share(staying, name, r.Partitions)
}

// next returns the record that the member writes: without the expired members and the partitions that the member gives back, and
// with free partitions added up to its share. started holds the partitions on which the member has begun work, and whether that
// work has returned: such a partition must be given back before it is taken again. A member that joins takes none at first,
// because others may be about to join as well.
func (r groupRecord) next(name string, session time.Duration, leaving bool, expired []string, started map[int]bool) groupRecord {
	old, joined := r.Members[name]
	r.Members = maps.Clone(r.Members)
	for _, n := range expired {
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
