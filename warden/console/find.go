// SPDX-License-Identifier: Apache-2.0

// Finding a rejection by the request ID or the decision number that its client got.

package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// findResult is the content of rejections.json.
type findResult struct {
	Version    int         `json:"version"`
	Title      string      `json:"title"`
	Instance   string      `json:"instance"`
	At         jsonTime    `json:"at"`
	Find       string      `json:"find"`
	Kept       int         `json:"kept"`       // rejections searched
	Since      jsonTime    `json:"since"`      // time of the oldest of these
	Rejections []rejection `json:"rejections"` // newest first
	Text       string      `json:"text"`
}

// recentRejections returns all rejections kept now, each under its limiter's display name.
func (c *Console) recentRejections() (all []decision.Explanation) {
	if w := c.cfg.Warden; w != nil {
		all = appendRejections(all, w.Name(), w.Limiter().Recent())
	}
	for _, l := range c.limiters {
		all = appendRejections(all, l.name, l.limiter.Recent())
	}
	if c.cfg.Set != nil {
		all = appendRejections(all, "", c.cfg.Set.Recent())
	}
	return all
}

// find answers ?find=, for scripts and for the page.
func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	what := strings.TrimSpace(r.URL.Query().Get("find"))
	if what == "" {
		writeProblem(
			w, http.StatusBadRequest,
			"nothing_to_find", "Say what to find: ?find= and the id of a request, or the number of a decision.",
		)
		return
	}
	serveJSON(w, r, c.search(what))
}

func (c *Console) search(what string) *findResult {
	all := c.recentRejections()
	f := &findResult{
		Version: version, Title: truncate(c.cfg.Title, longestName), Instance: truncate(c.cfg.Instance, longestName),
		At:   jsonTime{time.Now()},
		Find: truncate(what, longestName), Kept: len(all),
	}
	for _, e := range all {
		if f.Since.IsZero() || e.At.Before(f.Since.Time) {
			f.Since = jsonTime{e.At}
		}
	}
	matches := slices.DeleteFunc(all, func(e decision.Explanation) bool {
		return e.Task.ID != what && (e.Decision == nil || strconv.FormatUint(e.Decision.Seq, 10) != what)
	})
	n := len(matches)
	f.Rejections = c.latestRejections(matches)
	switch shown := len(f.Rejections); {
	case f.Kept == 0:
		f.Text = "Not found: this process keeps no rejection. One of another process or of a circuit breaker may be in the log."
	case n == 0:
		f.Text = fmt.Sprintf("Not found. This process keeps the last rejections of each limiter and compartment, %d now, the oldest of %s. "+
			"An older one, one of another process and one of a circuit breaker may be in the log.",
			f.Kept, f.Since.UTC().Format("15:04:05 UTC"))
	case shown < n:
		f.Text = fmt.Sprintf("Found %d of the %d rejections that are kept; the last %d are shown.", n, f.Kept, shown)
	default:
		f.Text = fmt.Sprintf("Found %d of the %d rejections that are kept.", n, f.Kept)
	}
	return f
}
