package main

// The same shop over PostgreSQL, where there is one.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// postgres returns the URL of a server, or skips the test where there is none; STOPBANK_POSTGRES=required forbids that.
func postgres(t *testing.T) string {
	t.Helper()
	server, err := pgtest.Open(context.Background(), false)
	switch {
	case errors.Is(err, pgtest.ErrNone) && !pgtest.Required():
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "storefront: %s\n", server.About())
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL()
}

func TestPostgres(t *testing.T) {
	at := postgres(t)
	t.Run("the routes answer, and nothing is left", func(t *testing.T) {
		sc := small()
		sc.acquire = time.Minute // none of its rejections is asked for here, and a server may be slow to connect to
		s, err := openShop(t.Context(), shopConfig{way: divided, scenario: sc, database: at})
		if err != nil {
			t.Fatal(err)
		}
		s.deploy([routes]time.Duration{analytics: time.Millisecond})
		answers(t, func(method, path string) *httptest.ResponseRecorder { return ask(s.server, method, path) })
		if err := s.close(); err != nil {
			t.Error(err)
		}
		db, err := sql.Open("pgx", at)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var left int
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_namespace WHERE nspname LIKE 'storefront%'`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d schemas are left, %v", left, err)
		}
	})
	t.Run("a sleep holds its connection", func(t *testing.T) {
		st, err := openStore(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		p := newPool(t, st, 1, 100*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := p.with(ctx, func(ctx context.Context, c *sql.Conn) (any, error) {
				close(begun)
				return nil, st.pause(ctx, c, time.Hour)
			})
			ended <- err
		}()
		<-begun
		cancel()
		if _, err := p.with(t.Context(), nothing); !errors.Is(err, errPoolTimeout) {
			t.Errorf("a second user got %v, want errPoolTimeout", err)
		}
		st.wake()
		if err := <-ended; err == nil {
			t.Error("a woken sleep reported success")
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("the incident, each way", func(t *testing.T) {
		sc := short().incident
		for _, kind := range []string{shared, divided, protected} {
			res, err := runHere(t.Context(), shopConfig{way: kind, scenario: sc, database: at}, 1, func(moment) {})
			if err != nil || res.unforeseen != nil || res.in(slow)[checkout].sent == 0 {
				t.Errorf("%s: %v, %v: %+v", kind, err, res.unforeseen, res.figures)
			}
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		if _, err := openStore(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"); err == nil {
			t.Error("opened")
		}
	})
}
