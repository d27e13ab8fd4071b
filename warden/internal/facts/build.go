// From what a program configures to what is asked.

package facts

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config says whom to ask, by name.
type Config struct {
	Wardens     map[string]*warden.Warden
	Limiters    map[string]*limiter.Limiter
	Sets        map[string]*bulkhead.Set
	Gates       map[string]func() GateStats
	Ledgers     map[string]func() (LedgerStats, error)
	Dispatchers map[string]Dispatcher
}

// Problem is what is wrong with a Config: the field, its value, and what is allowed.
type Problem struct {
	Field   string
	Value   any
	Allowed string
}

// Build makes the sources, or says what is wrong first.
func Build(cfg Config) ([]*Source, *Problem) {
	for name := range cfg.Wardens {
		if _, twice := cfg.Limiters[name]; twice {
			return nil, &Problem{"Config.Limiters", name, "names that no warden has"}
		}
	}
	b := &builder{}
	add(b, "Wardens", "warden", cfg.Wardens, func(w *warden.Warden) bool { return w != nil && w.Limiter() != nil }, func(p Put, name string, w *warden.Warden) error {
		ReadWarden(p, name, w)
		return nil
	})
	add(b, "Limiters", "limiter", cfg.Limiters, func(l *limiter.Limiter) bool { return l != nil }, func(p Put, name string, l *limiter.Limiter) error {
		ReadLimiter(p, name, l)
		return nil
	})
	add(b, "Sets", "set", cfg.Sets, func(s *bulkhead.Set) bool { return s != nil }, func(p Put, name string, s *bulkhead.Set) error {
		ReadSet(p, name, s)
		return nil
	})
	add(b, "Gates", "gate", cfg.Gates, func(stats func() GateStats) bool { return stats != nil }, func(p Put, name string, stats func() GateStats) error {
		ReadGate(p, name, stats())
		return nil
	})
	add(b, "Ledgers", "ledger", cfg.Ledgers, func(stats func() (LedgerStats, error)) bool { return stats != nil }, func(p Put, name string, stats func() (LedgerStats, error)) error {
		s, err := stats()
		if err == nil {
			ReadLedger(p, name, s)
		}
		return err
	})
	add(b, "Dispatchers", "dispatcher", cfg.Dispatchers, func(d Dispatcher) bool { return d.Stats != nil }, func(p Put, name string, d Dispatcher) error {
		ReadDispatcher(p, name, d)
		return nil
	})
	if b.wrong != nil {
		return nil, b.wrong
	}
	return b.sources, nil
}

type builder struct {
	sources []*Source
	wrong   *Problem // the first mistake
}

// add makes the sources of one kind.
func add[T any](b *builder, field, kind string, of map[string]T, valid func(T) bool, read func(Put, string, T) error) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		v := of[name]
		switch {
		case b.wrong != nil:
			return
		case !Valid(name):
			b.wrong = &Problem{"Config." + field, fmt.Sprintf("%.140q", name), ValidNames}
		case !valid(v):
			b.wrong = &Problem{fmt.Sprintf("Config.%s[%q]", field, name), "nil or zero", "a source made by its New function"}
		}
		b.sources = append(b.sources, &Source{Label: kind + "/" + name, Read: func(p Put) error { return read(p, name, v) }})
	}
}
