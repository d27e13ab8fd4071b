// SPDX-License-Identifier: Apache-2.0

package journal

// This file is what an entry says: facts. Each can be said again, and the later one of two about the same thing holds, so an
// entry that was written twice, or by half, does no harm.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// An entry is a byte with the format, facts, and the CRC-32C of the ledger's name and of all that, little-endian. A fact is a
// byte with its kind and then, in numbers of encoding/binary:
const (
	format = 1

	begun    = 1 // offset (signed): every offset up to it may have been leased
	floor    = 2 // floor (signed)
	done     = 3 // offsets that are processed: how many, the least (signed), then each as its distance to the one before
	given    = 4 // offsets that are failed, as above
	live     = 5 // a domain's lease and backlog: length of the name, the name, length, State.AppendLive
	overhead = 32
)

// facts are a journal, or the part of it that is to be written.
type facts struct {
	begun, floor int64
	done, given  []int64
	live         map[string][]byte // State.AppendLive, by domain
}

func noFacts() facts {
	return facts{begun: math.MinInt64, floor: math.MinInt64, live: map[string][]byte{}}
}

// entries encodes f, in as many entries as it needs if none may exceed limit. What is done comes before the leases that it
// ended, and what has begun comes last: Close lowers it.
func (f *facts) entries(name string, limit int) [][]byte {
	p := packer{name: name, limit: limit}
	p.add(binary.AppendVarint([]byte{floor}, f.floor))
	for kind, offsets := range map[byte][]int64{done: f.done, given: f.given} {
		offsets = slices.Clone(offsets)
		slices.Sort(offsets)
		for some := range slices.Chunk(slices.Compact(offsets), max(1, min(1024, limit/(2*binary.MaxVarintLen64)))) {
			b := binary.AppendUvarint([]byte{kind}, uint64(len(some)))
			b = binary.AppendVarint(b, some[0])
			for i, offset := range some[1:] {
				b = binary.AppendUvarint(b, uint64(offset)-uint64(some[i]))
			}
			p.add(b)
		}
	}
	for domain, state := range f.live {
		b := binary.AppendUvarint([]byte{live}, uint64(len(domain)))
		b = binary.AppendUvarint(append(b, domain...), uint64(len(state)))
		p.add(append(b, state...))
	}
	p.add(binary.AppendVarint([]byte{begun}, f.begun))
	return p.end()
}

// packer fills entries up to a limit.
type packer struct {
	name    string
	limit   int
	current []byte
	all     [][]byte
}

func (p *packer) add(fact []byte) {
	if len(p.current) > 0 && len(p.current)+len(fact)+crc32.Size > p.limit {
		p.end()
	}
	if len(p.current) == 0 {
		p.current = []byte{format}
	}
	p.current = append(p.current, fact...)
}

func (p *packer) end() [][]byte {
	if len(p.current) > 0 {
		p.all = append(p.all, binary.LittleEndian.AppendUint32(p.current, sum(p.name, p.current)))
		p.current = nil
	}
	return p.all
}

func sum(name string, b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(name), table), table, b)
}

var errEntry = errors.New("not what a ledger writes")

// read adds what an entry says to f. Errors: durable.ErrCorrupt and durable.ErrNewer.
func (f *facts) read(name string, entry []byte) error {
	corrupt := func(defect error) error {
		return fmt.Errorf("%w: ledger %q: an entry: %w", durable.ErrCorrupt, name, defect)
	}
	switch n := len(entry) - crc32.Size; {
	case n < 1:
		return corrupt(errEntry)
	case entry[0] > format:
		return fmt.Errorf("%w: ledger %q: an entry has format %d, this program knows up to %d", durable.ErrNewer, name, entry[0], format)
	case binary.LittleEndian.Uint32(entry[n:]) != sum(name, entry[:n]):
		return corrupt(errors.New("its checksum is wrong"))
	default:
		entry = entry[1:n]
	}
	d := decoder{rest: entry}
	for len(d.rest) > 0 && !d.wrong {
		kind := d.rest[0]
		d.rest = d.rest[1:]
		switch kind {
		case begun:
			f.begun = d.signed()
		case floor:
			f.floor = max(f.floor, d.signed())
		case done:
			f.done = d.offsets(f.done)
		case given:
			f.given = d.offsets(f.given)
		case live:
			domain := string(d.bytes())
			f.live[domain] = slices.Clone(d.bytes())
		default:
			d.wrong = true
		}
	}
	if d.wrong {
		return corrupt(errEntry)
	}
	return nil
}

// states returns the domains that have a lease or a backlog. A lease whose offset is done has ended: of a batch that was written
// by half, what is done comes first.
func (f *facts) states(name string) (map[string]step.State, error) {
	states := map[string]step.State{}
	for domain, b := range f.live {
		var s step.State
		if err := s.Decode(b); err != nil {
			return nil, fmt.Errorf("%w: ledger %q: domain %q: %w", durable.ErrCorrupt, name, domain, err)
		}
		if l, ok := s.Leased(); ok {
			end := step.Op{Token: l.Token}
			if has(f.done, l.Offset) {
				end.Kind = step.Succeed
			} else if has(f.given, l.Offset) {
				end.Kind, end.MaxRetries = step.Fail, -1
			}
			if end.Kind != 0 {
				s.Step(&step.Op{Kind: step.Reclaim, Token: l.Token, Fresh: l.Token}, new(step.Result)) // a released one too
				s.Step(&end, new(step.Result))
			}
		}
		if !s.Vacant() {
			states[domain] = s
		}
	}
	return states, nil
}

// has reports whether sorted offsets have one.
func has(offsets []int64, offset int64) bool {
	_, found := slices.BinarySearch(offsets, offset)
	return found
}

// decoder takes facts apart. It checks lengths before anything is allocated.
type decoder struct {
	rest  []byte
	wrong bool
}

func (d *decoder) unsigned() uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.wrong, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) signed() int64 {
	x := d.unsigned()
	return int64(x>>1) ^ -int64(x&1)
}

func (d *decoder) bytes() []byte {
	n := d.unsigned()
	if n > uint64(len(d.rest)) {
		d.wrong, d.rest = true, nil
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) offsets(to []int64) []int64 {
	n := d.unsigned()
	if n == 0 || n > uint64(len(d.rest)) {
		d.wrong = true
		return to
	}
	offset := d.signed()
	for i := uint64(0); !d.wrong; offset += int64(d.unsigned()) {
		to = append(to, offset)
		if i++; i == n {
			break
		}
	}
	return to
}
