// The example, shorter: the limit of a warden that is told follows the pool, and says so.

package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheLimitFollowsThePool(t *testing.T) {
	db, err := openSQLite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	capacity, err := db.probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := run(t.Context(), db, []monitor.Pool{db.pool}, 4*capacity, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if r.answered == 0 || r.limit > 4 || !strings.Contains(r.why, "pool_full: orders-db: 1 of 1 in use") {
		t.Errorf("%d answered, limit %d, why %q", r.answered, r.limit, r.why)
	}
}
