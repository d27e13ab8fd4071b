// SPDX-License-Identifier: Apache-2.0

// Floods of real servers on loopback: what is counted, what is refused, and that the JSON is what its schema says.

package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serve starts a server that speaks HTTP/1 and HTTP/2.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// flood runs the command and returns its report.
func flood(t *testing.T, args ...string) (report, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	var table strings.Builder
	if err := run(t.Context(), append([]string{"-json", file}, args...), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, text)
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r, table.String()
}

// conforms checks a JSON text against schema.json, for the keywords that it uses.
func conforms(t *testing.T, text []byte) {
	t.Helper()
	schema, err := os.ReadFile("schema.json")
	var s map[string]any
	var v any
	if err := errors.Join(err, json.Unmarshal(schema, &s), json.Unmarshal(text, &v)); err != nil {
		t.Fatal(err)
	}
	for _, finding := range violations("report", s, v) {
		t.Error(finding)
	}
}

// violations are what the schema does not allow of a value.
func violations(at string, s map[string]any, v any) (all []string) {
	found := func(format string, args ...any) { all = append(all, at+": "+fmt.Sprintf(format, args...)) }
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, has := v[name.(string)]; !has {
				found("%s is missing", name)
			}
		}
		properties, _ := s["properties"].(map[string]any)
		for name, of := range v {
			p, known := properties[name].(map[string]any)
			if !known {
				p, known = s["additionalProperties"].(map[string]any)
			}
			if !known {
				found("%s is not in the schema", name)
			}
			all = append(all, violations(at+"."+name, p, of)...)
		}
	case []any:
		kind = "array"
		for i, of := range v {
			all = append(all, violations(fmt.Sprintf("%s[%d]", at, i), s["items"].(map[string]any), of)...)
		}
	case string:
		kind = "string"
		if enum, bounded := s["enum"].([]any); bounded && !slices.Contains(enum, any(v)) {
			found("%v, want one of %v", v, enum)
		}
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; s["type"] == "integer" && v == math.Trunc(v) {
			kind = "integer"
		}
		least, bounded := s["minimum"].(float64)
		if most, above := s["maximum"].(float64); bounded && v < least || above && v > most {
			found("%v, want %v to %v", v, s["minimum"], s["maximum"])
		}
	}
	if s["type"] != kind {
		found("%T, want %v", v, s["type"])
	}
	return all
}

// A service that serves critical requests only, refuses normal ones, and hangs with background ones.
func TestCounts(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if http2 != (r.ProtoMajor == 2) {
				t.Errorf("HTTP/%d", r.ProtoMajor)
			}
			switch r.Header.Get("Warden-Priority") {
			case "critical":
				if left := r.Header.Get("Warden-Timeout"); left == "" || r.URL.Path != "/buy" || r.Method != http.MethodPost {
					t.Errorf("%s %s with %q ms left", r.Method, r.URL, left)
				}
				if body, _ := io.ReadAll(r.Body); len(body) != 100 {
					t.Errorf("a body of %d", len(body))
				}
			case "background":
				<-r.Context().Done()
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		args := []string{"-capacity", "50", "-load", "2", "-before", "0s", "-for", "1s", "-after", "0s", "-route",
			"path=/buy,share=0.25,priority=critical,deadline=1s,method=POST,body=100", "-route", "path=/x", "-route",
			"path=/y,share=0.25,priority=background,patience=50ms"}
		if http2 {
			args = append(args, "-http2")
		}
		r, table := flood(t, append(args, s.URL)...)
		run := r.Runs[0]
		if len(run.Shares) != 3 || r.Measured || r.Capacity != 50 {
			t.Fatalf("%+v", r)
		}
		due, served, hung := 0, 0.0, 0.0
		for _, share := range run.Shares {
			due += share.Due
			served += share.Served * float64(share.Due)
			hung += share.Hung * float64(share.Due)
		}
		c, n, b := run.Shares[0], run.Shares[1], run.Shares[2]
		if c.Served != 1 || n.Refused != 1 || b.Hung != 1 || due != run.Statuses["200"]+run.Statuses["503"]+run.Statuses["0"] {
			t.Errorf("%+v, %v", run.Shares, run.Statuses)
		}
		goodput := served / min(float64(due), 50)
		if math.Abs(run.Goodput-goodput) > 1e-9 || math.Abs(run.Hung-hung/float64(due)) > 1e-9 || run.FirstNo < 0 {
			t.Errorf("%+v, want a goodput of %v", run, goodput)
		}
		if !strings.Contains(table, "| 2× |") || !strings.Contains(table, "critical 1.000, normal 0.000, background 0.000") {
			t.Errorf("%s", table)
		}
	}
}

// A route that the service does not know says so: its zeros are not the overload's.
func TestUnknownRoute(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && r.URL.Path == "/buy" {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
	r, table := flood(t, "-capacity", "20", "-load", "1", "-before", "0s", "-for", "1s", "-after", "0s", "-route", "path=/buy,share=0.5", "-route", "path=/x", s.URL)
	const want = "no GET /buy was served, all had status 405"
	if !strings.Contains(r.Runs[0].Doubt, want) || strings.Contains(r.Runs[0].Doubt, "/x") || !strings.Contains(table, want) {
		t.Errorf("%q\n%s", r.Runs[0].Doubt, table)
	}
}

// Clients whose connection breaks have not left, whether it is accepted or not.
func TestBroken(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	})
	closed := serve(t, func(http.ResponseWriter, *http.Request) {})
	closed.Close()
	for name, url := range map[string]string{"cut off": s.URL, "refused": closed.URL} {
		r, _ := flood(t, "-capacity", "20", "-load", "1", "-before", "0s", "-for", "1s", "-after", "0s", url)
		run := r.Runs[0]
		if run.Broken != 1 || run.Hung != 0 || run.Shares[0].Broken != 1 {
			t.Errorf("%s: %+v", name, run)
		}
	}
}

// The file of requests has a line for each, which says what the report counts.
func TestRequests(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	file := filepath.Join(t.TempDir(), "requests.csv")
	r, _ := flood(t, "-requests", file, "-capacity", "50", "-load", "1,2", "-before", "1s", "-for", "1s", "-after", "1s", "-route",
		`path=/,share=0.5,priority=critical,name=a "yes"`, "-route", "path=/no", s.URL)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if want := "load,phase,route,priority,due_ms,sent_ms,done_ms,status,ended"; strings.Join(lines[0], ",") != want {
		t.Errorf("%q, want %s", lines[0], want)
	}
	count := map[string]int{}
	for _, l := range lines[1:] {
		count[l[0]+" "+l[1]]++
		var at [3]float64 // due, sent, done
		for i := range at {
			if at[i], err = strconv.ParseFloat(l[4+i], 64); err != nil {
				t.Fatalf("%q: %v", l, err)
			}
		}
		want := "GET /no,normal,503,refused"
		if l[3] == "critical" {
			want = `a "yes",critical,200,served`
		}
		if got := strings.Join(slices.Concat(l[2:4], l[7:]), ","); got != want || !slices.IsSorted(at[:]) {
			t.Errorf("%q at %v, want %q", got, at, want)
		}
	}
	for _, run := range r.Runs {
		of := func(phase string) int { return count[fmt.Sprintf("%g %s", run.Load, phase)] }
		if due := run.Shares[0].Due + run.Shares[1].Due; of("load") != due || of("before") == 0 || of("after") == 0 {
			t.Errorf("%v, want %d of load %g", count, due, run.Load)
		}
	}
}

// A request ends in one way.
func TestEnded(t *testing.T) {
	r := &route{patience: time.Second}
	for want, o := range map[string]outcome{
		"served": {status: 204, done: time.Second}, "late": {status: 200, done: time.Second + 1}, "refused": {status: 429},
		"not sent": {hung: true, notSent: true}, "hung": {hung: true}, "broken": {broken: true},
	} {
		o.arrival = arrival{route: r}
		if got := o.ended(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The capacity of four workers is found, whatever many clients do to it.
func TestMeasuresTheCapacity(t *testing.T) {
	t.Parallel()
	workers := make(chan struct{}, 4)
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		workers <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		<-workers
	})
	r, _ := flood(t, "-load", "0.5", "-before", "0s", "-for", "1s", "-after", "0s", s.URL)
	if !r.Measured || r.Capacity <= 20 || r.Capacity > 210 { // 200, less on a busy machine
		t.Errorf("capacity %v", r.Capacity)
	}
}

// A service that recovers with the load's end is seen to, and one that does not is not.
func TestRecovery(t *testing.T) {
	p := &plan{before: 2 * time.Second, length: 2 * time.Second, after: 4 * time.Second}
	r := &route{priority: "normal", patience: time.Second}
	for _, c := range []struct {
		failing int // seconds of the last four in which nobody is served
		want    float64
	}{{0, 0}, {1, 1000}, {3, 3000}, {4, -1}} {
		var all []outcome
		for at := time.Duration(0); at < 8*time.Second; at += 100 * time.Millisecond {
			o := outcome{arrival: arrival{at, r, before}, done: at + time.Millisecond, status: 200}
			switch {
			case at >= 4*time.Second:
				if o.phase = after; at < time.Duration(4+c.failing)*time.Second {
					o.status = 503
				}
			case at >= 2*time.Second:
				o.phase, o.status = step, 503
			}
			all = append(all, o)
		}
		if got := p.recovery(all); got != c.want {
			t.Errorf("failing for %d s: recovered after %v ms, want %v", c.failing, got, c.want)
		}
	}
}

// A flood without bounds, or of somebody who has not agreed, is refused before a request is sent, with the flag and what is allowed.
func TestRefuses(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for _, c := range []struct {
		args    string
		field   string
		allowed string
	}{
		{"-for 8760h", "-before, -for and -after of all loads", "up to 15m0s"},
		{"-before 2562047h -for 2562047h", "-before, -for and -after of all loads", "up to 15m0s"},
		{"-load 1,2,4,8 -for 4m", "-before, -for and -after of all loads", "up to 15m0s"},
		{"-for 1ms", "-for", "1s or more"}, {"-before -1s", "-before", "0 or more"}, {"-after -1s", "-after", "0 or more"},
		{"-capacity 1e9", "-capacity", "20000"}, {"-capacity NaN", "-capacity", "20000"}, {"-capacity -1", "-capacity", "20000"},
		{"-capacity 5000 -load 8", "-load: requests per second", "up to 20000"},
		{"-load 0", "-load", "above 0 to 100"},
		{"-load NaN", "-load", "above 0 to 100"}, {"-load 101", "-load", "above 0 to 100"}, {"-base 2", "-base", "0 to 1"},
		{"-route share=.6 -route share=.6", "-route: the sum of share", "1, or less"}, {"-route share=.6", "-route: the sum of share", "1"},
	} {
		err := run(t.Context(), append(strings.Fields(c.args), s.URL), io.Discard, io.Discard)
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Field != c.field || !strings.Contains(limit.Allowed, c.allowed) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	for _, args := range []string{
		"-route path=x", "-route method=TRACE", "-route priority=urgent", "-route share=2", "-route share=NaN", "-route patience=2h",
		"-route deadline=1ns", "-route body=-1", "-route body=99999999", "-route color=red", "-load many",
	} {
		if err := run(t.Context(), append(strings.Fields(args), s.URL), io.Discard, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "allowed: ") {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, args := range []string{"", "localhost", "ftp://localhost", "http://", "http://192.0.2.1", "http://a http://b", "http://[::ffff:192.0.2.1]/"} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		if limit := new(LimitError); !errors.As(err, &limit) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// A target says by a header how much it agrees to; an answer without it is a no.
func TestAgreement(t *testing.T) {
	for says, want := range map[string]float64{"": 0, "no": 0, "-5": 0, "NaN": 0, "250": 250, "1e9": mostRate} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(agreedHeader, says) })
		p, _, err := parse([]string{"-beyond-loopback", s.URL}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		to, err := aim(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := to.agreed(t.Context(), "/")
		if to.close(); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v, want %v", says, got, err, want)
		}
		p.capacity = 200
		if err := p.checkRates(got); (err == nil) != (got >= 400) {
			t.Errorf("%q: 400/s: %v", says, err)
		}
	}
}

// A redirect is an answer: a flood goes nowhere else.
func TestFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
	r, _ := flood(t, "-capacity", "10", "-load", "1", "-before", "0s", "-for", "1s", "-after", "0s", s.URL)
	if r.Runs[0].Statuses["302"] == 0 {
		t.Errorf("%+v", r.Runs[0])
	}
}

// Equal seeds give equal arrivals, in order, with the rates and shares that were asked for.
func TestArrivals(t *testing.T) {
	p, _, err := parse([]string{"-capacity", "1000", "-for", "10s", "-before", "2s", "-after", "2s", "-route", "share=.2,priority=critical",
		"-route", "path=/", "http://127.0.0.1:1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	all := p.arrivals(2)
	if !slices.Equal(all, p.arrivals(2)) || !slices.IsSortedFunc(all, func(a, b arrival) int { return int(a.due - b.due) }) {
		t.Error("not equal, or not in order")
	}
	var in [3]int
	critical := 0
	for _, a := range all {
		if in[a.phase]++; a.route.priority == "critical" {
			critical++
		}
	}
	for phase, want := range [3]float64{1000, 20000, 1000} {
		if got := float64(in[phase]); got < .8*want || got > 1.2*want {
			t.Errorf("%v in phase %d, want about %v", got, phase, want)
		}
	}
	if got := float64(critical) / float64(len(all)); got < .18 || got > .22 {
		t.Errorf("%v are critical", got)
	}
	p.even = true
	for i, a := range p.arrivals(2)[1000:21000] { // 2,000 a second, from 2 s on
		if at := 2*time.Second + time.Duration(i)*time.Millisecond/2; a.due < at || a.due > at+time.Millisecond/4 {
			t.Fatalf("the request at %v is due at %v", at, a.due)
		}
	}
}

// An interrupt ends a flood.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(http.ResponseWriter, *http.Request) { cancel() })
	if err := run(ctx, []string{"-capacity", "100", "-for", "10m", s.URL}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
