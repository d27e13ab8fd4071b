package main

// From what a rejected customer was told to the log and the console: one id in all of them.

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestH21_ARejectionIsFoundByItsID(t *testing.T) {
	log := &cut{mark: "\x00", end: func(string) {}}
	s, p, o := newLogged(t, protected, "", small(), log)
	for range 2 { // as many as admin may have
		_, permit, err := s.set.Compartment("admin").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer permit.Release(nil)
	}
	rejected := func(path, given, reason, by string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if given != "" {
			req.Header.Set("X-Request-Id", given)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var told struct {
			Reason   string
			Decision *uint64
			ID       string `json:"request_id"`
			Instance string `json:"server_instance"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&told); err != nil {
			t.Fatal(err)
		}
		if told.Reason != reason || told.Decision == nil || told.ID == "" || given != "" && told.ID != given || resp.Header.Get("X-Request-Id") != told.ID {
			t.Fatalf("%s: %+v, header %q", path, told, resp.Header.Get("X-Request-Id"))
		}

		// The first rejection of an episode is a line, unless ten other changes were in its second.
		if err := o.log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, " request_id="+told.ID+" ") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], `msg="stopbank: rejecting started"`) || !strings.Contains(lines[0], "reason="+reason) {
			t.Errorf("%s: %q in\n%s", told.ID, lines, log)
		}

		for _, what := range []string{told.ID, strconv.FormatUint(*told.Decision, 10)} {
			_, _, text := call(t, "GET", p.url+"/console/rejections.json?find="+url.QueryEscape(what), "", "")
			var found struct {
				Instance   string
				Rejections []struct {
					Limiter string
					ID      string `json:"request_id"`
				}
			}
			if err := json.Unmarshal([]byte(text), &found); err != nil {
				t.Fatal(err)
			}
			is := found.Rejections
			if len(is) == 0 || is[0].ID != told.ID || is[0].Limiter != by || found.Instance != instance() {
				t.Errorf("%s, searched for %s: %s", path, what, text)
			}
		}
		if by == "warden" && told.Instance != valueOf(lines, "instance=") {
			t.Errorf("the client was told %q, the log says %q", told.Instance, lines)
		}
	}
	rejected("/admin/counts", "", "timeout_queued", "admin") // by a compartment, as its handler says
	s.warden.Limiter().Close()
	rejected("/products", "4bf92f3577b34da6", "closed", "warden") // by the middleware
}

// valueOf is the value behind a key in the first line.
func valueOf(lines []string, key string) string {
	if len(lines) == 0 {
		return ""
	}
	_, rest, _ := strings.Cut(lines[0], " "+key)
	value, _, _ := strings.Cut(rest, " ")
	return value
}
