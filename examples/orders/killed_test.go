package main

// D6 across processes: a record that kills each process that works on it.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
)

const killedVariable = "ORDERS_JOURNAL"

// journal is a file shared by successive processes, with a line for each swap of the ledger, floor, run and dead letter.
type journal struct {
	durable.Store
	mu   sync.Mutex // guards file; held during swaps, so that lines are in the order of the swaps
	file *os.File
}

type line struct {
	Name  string        `json:",omitempty"` // of a swap
	State []byte        `json:",omitempty"`
	Old   uint64        `json:",omitempty"`
	Index durable.Index `json:",omitempty"`
	What  string        // swap, floor, run, letter
	Value int64
	Died  bool
}

// open reads the lines of earlier processes and ignores unfinished ones.
func (j *journal) open(path string) (lines []line, err error) {
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	for in := bufio.NewScanner(j.file); in.Scan(); {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil {
			continue
		}
		lines = append(lines, l)
		if l.What == "swap" {
			if _, err := j.Store.Swap(context.Background(), l.Name, l.Old, l.State, l.Index); err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

func (j *journal) write(l line) error {
	b, err := json.Marshal(l)
	if err == nil {
		_, err = j.file.Write(append(append([]byte{'\n'}, b...), '\n'))
	}
	return err
}

func (j *journal) note(what string, value int64, died bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(line{What: what, Value: value, Died: died})
}

func (j *journal) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	version, err := j.Store.Swap(ctx, name, old, state, index)
	if err != nil {
		return 0, err
	}
	return version, j.write(line{What: "swap", Name: name, State: state, Old: old, Index: index})
}

// journalled is a log that writes its floor to the journal.
type journalled struct {
	*dispatch.Log
	*journal
}

func (s journalled) Commit(ctx context.Context, floor int64) error {
	if err := s.note("floor", floor, false); err != nil {
		return err
	}
	return s.Log.Commit(ctx, floor)
}

const (
	killedRecords, killer = 60, 20
	killedRetries         = 3
)

// killedChild is one process: it processes the log unless it is killed.
func killedChild(path string) error {
	log := new(dispatch.Log)
	for i := range killedRecords {
		log.Append(string(rune('A'+i)), nil)
	}
	j := &journal{Store: durable.NewMemStore()}
	lines, err := j.open(path)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.What == "floor" {
			if err := log.Commit(context.Background(), l.Value); err != nil {
				return err
			}
		}
	}
	ledger, err := durable.New(durable.Config{Store: j, MaxRetries: killedRetries})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: journalled{log, j}}, dispatch.Config{
		MaxInFlight: 16, CommitEvery: 5 * time.Millisecond,
		Handler: func(_ context.Context, job dispatch.Job) error {
			if err := j.note("run", job.Record.Offset, false); err != nil {
				return err
			}
			if job.Record.Offset == killer {
				if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
					select {} // until the signal arrives
				}
			}
			time.Sleep(20 * time.Millisecond) // the work
			return nil
		},
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			return j.note("letter", letter.Record.Offset, errors.Is(letter.Err, dispatch.ErrDied))
		},
		Observer: observed(func(e dispatch.Event) {
			if e.Kind == dispatch.Committed && e.Offset == killedRecords {
				stop()
			}
		}),
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

type observed func(dispatch.Event)

func (o observed) Observe(e dispatch.Event) { o(e) }

// One record kills process after process until it becomes a dead letter. The fifteen records in flight beside it lose nothing.
func TestProcessesKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	deaths := 0
	for over := false; !over; {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), killedVariable+"="+path), os.Stderr
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			over = true
		case errors.As(err, &exit) && exit.ExitCode() == -1 && deaths <= killedRetries:
			deaths++
		default:
			t.Fatalf("D6: after %d deaths: %v", deaths, err)
		}
	}
	lines, err := (&journal{Store: durable.NewMemStore()}).open(path)
	if err != nil {
		t.Fatal(err)
	}
	runs, letters, floor := map[int64]int{}, []line{}, int64(0)
	for _, l := range lines {
		switch l.What {
		case "run":
			runs[l.Value]++
		case "letter":
			letters = append(letters, l)
		case "floor":
			floor = max(floor, l.Value)
		}
	}
	if deaths != killedRetries+1 || runs[killer] != killedRetries+1 || floor != killedRecords {
		t.Errorf("D6: %d deaths, %d runs of the killer, floor %d", deaths, runs[killer], floor)
	}
	if !slices.EqualFunc(letters, []int64{killer}, func(l line, offset int64) bool { return l.Value == offset && l.Died }) {
		t.Errorf("D6: given up: %+v", letters)
	}
	again := 0
	for offset := range int64(killedRecords) {
		if offset != killer && runs[offset] == 0 {
			t.Errorf("D6: %d was never run", offset)
		}
		again += max(0, runs[offset]-1)
	}
	if again <= killedRetries {
		t.Error("D6: nothing was running beside the killer")
	}
}
