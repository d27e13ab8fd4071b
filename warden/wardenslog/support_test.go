// SPDX-License-Identifier: Apache-2.0

// What the tests share: a book that lines are written into, and read from.

package wardenslog_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a line as a reader of JSON finds it.
type entry struct {
	Msg, Level string
	Limiter    string
	Priority   string
	Mode       string
	Why        struct {
		Limiter, Outcome, Reason string
		Task                     struct{ Name string }
		Decision                 struct{ Seq uint64 }
	}
	LeftOut  uint64 `json:"left_out"`
	Lasted   time.Duration
	Left, Of uint64
	ID       string `json:"request_id"`
	Rejected map[string]uint64
	Decision struct{ Seq uint64 }
}

// book keeps the lines that are written into it.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// all returns the text, and clears the book if empty is true.
func (b *book) all(empty bool) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text.String()
	if empty {
		b.text.Reset()
	}
	return text
}

func (b *book) lines(t *testing.T) []entry {
	t.Helper()
	text := b.all(false)
	var out []entry
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var e entry
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatalf("%v in %s", err, text)
		}
		out = append(out, e)
	}
}

func messages(lines []entry) []string {
	var out []string
	for _, e := range lines {
		out = append(out, strings.TrimPrefix(e.Msg, "stopbank: "))
	}
	return out
}

// open returns a logger that writes into the book.
func open() (*wardenslog.Logger, *book) {
	b := new(book)
	return wardenslog.New(slog.New(slog.NewJSONHandler(b, nil))), b
}

func event(o decision.Outcome, r decision.RejectionReason) limiter.Event {
	return limiter.Event{Explanation: decision.Explanation{
		Limiter: "prices", Outcome: o, Reason: r, At: time.Now(), DecisionState: decision.Applied,
		Decision: &decision.ControlDecision{Seq: 4},
	}}
}

// holds checks that a text has a line for each of these, which has all of its parts.
func holds(t *testing.T, text string, want ...[]string) {
	t.Helper()
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %q:\n%s", len(lines), want, text)
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("line %d is %s, without %s", i, lines[i], part)
			}
		}
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
