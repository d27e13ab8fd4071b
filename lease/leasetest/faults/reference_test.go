package faults

// This file is the reference engine: stores and registers in memory, sound or broken in one of several ways, served to processes over a port.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// Reference is a durable.MemStore and a register for each ledger, served to processes. It is exported for package rpc alone, as its methods are.
type Reference struct {
	fault  string
	mu     sync.Mutex // guards what follows
	stores map[string]*durable.MemStore
	logs   map[string][]Entry
	swaps  int
}

type (
	// Ask is what a client asks for.
	Ask struct {
		Ledger, Name string
		Old          uint64
		State        []byte
		Index        durable.Index
		Entry        Entry
	}
	// Answer is what it gets.
	Answer struct {
		State    []byte
		Version  uint64
		Conflict bool
		Names    []string
		Applied  bool
		Entries  []Entry
	}
)

func (r *Reference) store(ledger string) *durable.MemStore {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stores[ledger] == nil {
		r.stores[ledger] = &durable.MemStore{}
	}
	return r.stores[ledger]
}

func (r *Reference) Load(q Ask, a *Answer) (err error) {
	a.State, a.Version, err = r.store(q.Ledger).Load(context.Background(), q.Name)
	return err
}

func (r *Reference) Swap(q Ask, a *Answer) (err error) {
	store := r.store(q.Ledger)
	r.mu.Lock()
	r.swaps++
	number := r.swaps
	r.mu.Unlock()
	if q.Name != "" {
		switch r.fault {
		case "the last swap wins":
			_, q.Old, _ = store.Load(context.Background(), q.Name)
		case "a swap is acknowledged and forgotten":
			if number%13 == 0 {
				a.Version = q.Old + 1
				return nil
			}
		case "what is held is filed as idle":
			if q.Index == durable.Held {
				q.Index = durable.Neither
			}
		}
	}
	a.Version, err = store.Swap(context.Background(), q.Name, q.Old, q.State, q.Index)
	if errors.Is(err, durable.ErrConflict) {
		a.Conflict, err = true, nil
	}
	return err
}

func (r *Reference) List(q Ask, a *Answer) error {
	for name, err := range r.store(q.Ledger).List(context.Background(), q.Index) {
		if err != nil {
			return err
		}
		a.Names = append(a.Names, name)
	}
	return nil
}

func (r *Reference) Apply(q Ask, a *Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.logs[q.Ledger]
	a.Applied = true
	for _, e := range log {
		if e == q.Entry {
			return nil
		}
		if e.Domain == q.Entry.Domain && e.Token > q.Entry.Token && r.fault != "the register takes any token" {
			a.Applied = false
			return nil
		}
	}
	r.logs[q.Ledger] = append(log, q.Entry)
	return nil
}

func (r *Reference) Log(q Ask, a *Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Entries = slices.Clone(r.logs[q.Ledger])
	return nil
}

// serving is a Reference on a port, which outlives its listener.
type serving struct {
	rpc      *rpc.Server
	at       string
	mu       sync.Mutex // guards what follows
	listener net.Listener
	open     []net.Conn
}

func serve(t *testing.T, fault string) *serving {
	s := &serving{rpc: rpc.NewServer(), at: "127.0.0.1:0"}
	r := &Reference{fault: fault, stores: map[string]*durable.MemStore{}, logs: map[string][]Entry{}}
	if err := s.rpc.Register(r); err != nil {
		t.Fatal(err)
	}
	if err := s.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.fall)
	return s
}

func (s *serving) listen() error {
	l, err := net.Listen("tcp", s.at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.at = l, l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, conn)
			s.mu.Unlock()
			go s.rpc.ServeConn(conn)
		}
	}()
	return nil
}

func (s *serving) fall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.listener.Close()
	for _, conn := range s.open {
		_ = conn.Close()
	}
	s.open = nil
}

// client is the reference engine: it connects anew after an error.
type client struct {
	address, ledger string
	lies            bool // says of every error that nothing was applied
	mu              sync.Mutex
	conn            *rpc.Client // guarded by mu; nil: none
}

func dial(_ context.Context, address, ledger string) (Side, error) {
	at, lies := strings.CutPrefix(address, "lies:")
	c := &client{address: at, ledger: ledger, lies: lies}
	return Side{Store: c, Register: (*downstream)(c), Close: c.reset}, nil
}

func (c *client) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn = nil
}

func (c *client) call(method string, q Ask) (a Answer, err error) {
	q.Ledger = c.ledger
	c.mu.Lock()
	if c.conn == nil {
		c.conn, err = rpc.Dial("tcp", c.address)
	}
	conn := c.conn
	c.mu.Unlock()
	if err == nil {
		err = conn.Call("Reference."+method, q, &a)
	}
	if err != nil {
		c.reset()
	}
	return a, err
}

func (c *client) Load(_ context.Context, name string) ([]byte, uint64, error) {
	a, err := c.call("Load", Ask{Name: name})
	return a.State, a.Version, err
}

func (c *client) Swap(_ context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	a, err := c.call("Swap", Ask{Name: name, Old: old, State: state, Index: index})
	switch {
	case err != nil && c.lies:
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, err)
	case a.Conflict:
		return 0, durable.ErrConflict
	}
	return a.Version, err
}

func (c *client) Limit(string) int { return 0 }

func (c *client) List(_ context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		a, err := c.call("List", Ask{Index: index})
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range a.Names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

type downstream client

func (d *downstream) Apply(_ context.Context, domain string, offset int64, token lease.Token) (bool, error) {
	a, err := (*client)(d).call("Apply", Ask{Entry: Entry{domain, offset, token}})
	return a.Applied, err
}

func (d *downstream) Entries(context.Context) ([]Entry, error) {
	a, err := (*client)(d).call("Log", Ask{})
	return a.Entries, err
}

func (s *serving) server(prefix string) Server {
	return Server{
		Open: dial, Address: prefix + s.at, TCP: s.at, Via: func(hostport string) string { return prefix + hostport },
		Restart: func(context.Context) error { s.fall(); return s.listen() },
	}
}
