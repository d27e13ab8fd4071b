package main

// The same shop over PostgreSQL, where there is one.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

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
