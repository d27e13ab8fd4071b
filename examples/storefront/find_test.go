package main

// The request id of a rejection is in the response, the log and the console.

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
	for range 2 { // all slots of admin
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
		var body struct {
			Reason   string
			Decision *uint64
			ID       string `json:"request_id"`
			Instance string `json:"server_instance"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if body.Reason != reason || by == "warden" && body.Decision == nil || body.ID == "" || given != "" && body.ID != given || resp.Header.Get("X-Request-Id") != body.ID {
			t.Fatalf("%s: %+v, header %q", path, body, resp.Header.Get("X-Request-Id"))
		}

		// The log has the first rejection of an episode, unless it has ten other changes in that second.
		if err := o.log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, " request_id="+body.ID+" ") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], `msg="stopbank: rejecting started"`) || !strings.Contains(lines[0], "reason="+reason) {
			t.Errorf("%s: %q in\n%s", body.ID, lines, log)
		}

		known := []string{body.ID}
		if body.Decision != nil { // a compartment may have none
			known = append(known, strconv.FormatUint(*body.Decision, 10))
		}
		for _, what := range known {
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
			if len(is) == 0 || is[0].ID != body.ID || is[0].Limiter != by || found.Instance != instance() {
				t.Errorf("%s, searched for %s: %s", path, what, text)
			}
		}
		if by == "warden" && body.Instance != valueOf(lines, "instance=") {
			t.Errorf("%q in the response, %q in the log", body.Instance, lines)
		}
	}
	rejected("/admin/counts", "", "timeout_queued", "admin") // by the compartment
	s.warden.Limiter().Close()
	rejected("/products", "4bf92f3577b34da6", "closed", "warden") // by the middleware
}

// valueOf is the value of a key in the first line.
func valueOf(lines []string, key string) string {
	if len(lines) == 0 {
		return ""
	}
	_, rest, _ := strings.Cut(lines[0], " "+key)
	value, _, _ := strings.Cut(rest, " ")
	return value
}
