// SPDX-License-Identifier: Apache-2.0

// What is understood, and that nothing else is, held against slow and plain readers.

package wire

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// headers are those of a request, by their names in gRPC.
type headers map[string][]string

// read returns them as Read does, without what was said if that is right.
func (h headers) read() Headers {
	got := Read(func(n Name) []string { return h[n.GRPC] })
	var want Said
	for i := range want {
		want[i] = len(h[want.name(i).GRPC]) > 0
	}
	if got.Said == want {
		got.Said = Said{}
	}
	return got
}

func TestTimes(t *testing.T) {
	const ms = time.Millisecond
	for name, values := range map[string]map[string]time.Duration{
		"warden-timeout": {
			"1000": time.Second, "1": ms, "86400000": Longest, "00000500": 500 * ms,
			"": 0, "0": 0, "-1": 0, "+1": 0, "86400001": 0, "99999999": 0, "999999999999999999999999": 0, "000000500": 0,
			"1.5": 0, "1e3": 0,
			"1s": 0, " 1": 0, "1 ": 0, "\t1": 0, "abc": 0, "٣": 0, "１": 0, "0x10": 0, "1_0": 0, "1, 1": 0, "5\x00": 0,
		},
		"x-envoy-expected-rq-timeout-ms": {"250": 250 * ms, "250ms": 0, "-250": 0},
		"x-request-timeout-ms":           {"250": 250 * ms, "0.25": 0},
		"connect-timeout-ms":             {"5000": 5 * time.Second, "0": 0, "1234567890": 0},
		"x-request-timeout": {
			"30": 30 * time.Second, "30s": 30 * time.Second, "2.5": 2500 * ms, "2.5s": 2500 * ms, "500ms": 500 * ms,
			"0.00000001": 10,
			"86400":      Longest, "10000": 10000 * time.Second,
			"86401": 0, "86400.1": 0, "0": 0, "0.0": 0, "": 0, "s": 0, "ms": 0, ".5": 0, "5.": 0, "5.s": 0, "-1": 0, "+1": 0,
			"1.5.1": 0, "1,5": 0,
			"0.000000001": 0, "30 s": 0, "30m": 0, "1h": 0, "30S": 0, "30ss": 0, "2.5ms": 0, "1e3": 0, "NaN": 0, "Inf": 0,
			" 30": 0, "٣٠": 0,
			"99999999999999999999": 0,
		},
		"grpc-timeout": {
			"1S": time.Second, "100m": 100 * ms, "2M": 2 * time.Minute, "24H": Longest, "250u": 250 * time.Microsecond,
			"99999999n": 99999999,
			"25H":       0, "99999999H": 0, "1": 0, "S": 0, "": 0, "0S": 0, "-1S": 0, "+1S": 0, "1s": 0, "1.5S": 0, "100000000n": 0,
			" 1S": 0, "1S ": 0, "1 S": 0, "٣S": 0,
		},
		"warden-timeouts": {"1": 0},
	} {
		for value, want := range values {
			if got := (headers{name: {value}}).read(); got != (Headers{Timeout: want}) || got.Any() != (want > 0) {
				t.Errorf("%s: %q: %+v, want %v", name, value, got, want)
			}
			if got := (headers{name: {value, value}}).read(); got != (Headers{}) {
				t.Errorf("%s: %q twice: %+v", name, value, got)
			}
		}
	}
}

func TestPriorities(t *testing.T) {
	for value, want := range map[string]decision.Priority{
		"background": decision.Background, "normal": 0, "high": decision.High, "critical": decision.Critical, "9": 9,
		"-128": -128, "127": 127, "007": 7, "-0": 0,
	} {
		if got := (headers{PriorityGRPC: {value}}).read(); got != (Headers{Priority: want, HasPriority: true}) {
			t.Errorf("%q: %+v", value, got)
		}
	}
	for _, value := range []string{
		"", "128", "-129", "999999999999999999999", "-99999999999999999999", "+5", "5.0", "0x5", "1_0", " 5", "5 ", "5, 6",
		"Critical", "CRITICAL", "lowest", "٣", "-",
	} {
		if got := (headers{PriorityGRPC: {value}}).read(); got != (Headers{}) {
			t.Errorf("%q: %+v", value, got)
		}
	}
}

// What browsers send with ordinary requests must not demote them: Chrome's documents are "u=0, i" and its fetches "u=1, i",
// Firefox's pictures "u=5, i" and what it fetches late u=6.
func TestBrowsersAreNotDemoted(t *testing.T) {
	for value, background := range map[string]bool{
		"u=0, i": false, "u=0": false, "u=1, i": false, "u=1": false, "u=2": false, "u=2, i": false,
		"u=3": false, "u=3, i": false, "i": false, "u=4": false,
		"u=4, i": false, "u=5, i": false, "u=5": false, "u=6": false, "u=6, i": false,
		"u=7": true, "u=7, i": true, "u=7,i": true, "i, u=7": true, "i=?0, u=7": true, "u=7\t,\ti=?1": true,
		"": false, "u=8": false, "u=-7": false, "u=07": false, "u=7.0": false, "u=٧": false, "U=7": false, "u= 7": false,
		"u =7": false, "7": false, "u=7;x": false,
		"u=7, u=7": false, "u=7, u=0": false, "u=7,": false, ",u=7": false, "u=7, x=1": false, "u=7 i": false, "u=77": false,
	} {
		want := Headers{}
		if background {
			want = Headers{Priority: decision.Background, HasPriority: true}
		}
		if got := (headers{"priority": {value}}).read(); got != want {
			t.Errorf("%q: %+v, want %+v", value, got, want)
		}
		if got := (headers{"priority": {value, value}}).read(); got != (Headers{}) {
			t.Errorf("%q twice: %+v", value, got)
		}
	}
}

func TestTheShortestAndTheLowestCount(t *testing.T) {
	h := headers{
		"warden-timeout": {"900"}, "grpc-timeout": {"800m"}, "x-envoy-expected-rq-timeout-ms": {"700"},
		"x-request-timeout": {"0.6"}, "x-request-timeout-ms": {"500"},
		PriorityGRPC: {"-70"}, "priority": {"u=7"},
	}
	want := Headers{Timeout: 500 * time.Millisecond, Priority: -70, HasPriority: true}
	if got := h.read(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, name := range []string{"x-request-timeout-ms", "x-request-timeout", "x-envoy-expected-rq-timeout-ms", "grpc-timeout"} {
		h[name] = []string{"none"}
		want.Timeout += 100 * time.Millisecond
		if got := h.read(); got != want {
			t.Errorf("without %s: %+v, want %+v", name, got, want)
		}
	}
	h[PriorityGRPC] = []string{"critical"}
	if got := h.read(); got.Priority != decision.Background {
		t.Errorf("%+v, want background", got)
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	h := headers{
		"warden-timeout": {"900"}, "priority": {"u=7, i"},
		PriorityGRPC: {strings.Repeat("x", 1000)}, "grpc-timeout": {"123456789S"}, "x-request-timeout": {"1.2345"},
	}
	if n := testing.AllocsPerRun(100, func() { h.read() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// number is what s says in units, if it has this form.
func number(s, form string, unit time.Duration) time.Duration {
	m := regexp.MustCompile(form).FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	r, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return 0
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(unit)))
	if !r.IsInt() || r.Sign() <= 0 || r.Cmp(new(big.Rat).SetInt64(int64(Longest))) > 0 {
		return 0
	}
	return time.Duration(r.Num().Int64())
}

func fuzzTime(f *testing.F, name string, plain func(string) time.Duration, seeds ...string) {
	for _, s := range append(seeds, "", "0", "-1", "99999999999999999999", "٣", " 1", "1\n", "1,1") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := (headers{name: {s}}).read(), plain(s); got != (Headers{Timeout: want}) {
			t.Fatalf("%q: %+v, want %v", s, got, want)
		}
	})
}

func FuzzMilliseconds(f *testing.F) {
	fuzzTime(f, "warden-timeout", func(s string) time.Duration {
		return number(s, `\A([0-9]{1,8})\z`, time.Millisecond)
	}, "1000", "86400000", "86400001")
}

func FuzzSeconds(f *testing.F) {
	fuzzTime(f, "x-request-timeout", func(s string) time.Duration {
		return max(
			number(s, `\A([0-9]{1,8}(?:\.[0-9]{1,8})?)s?\z`, time.Second), number(s, `\A([0-9]{1,8})ms\z`, time.Millisecond),
		)
	}, "30", "2.5s", "500ms", "86400.00000001", "5.", ".5", "1ss")
}

func FuzzGRPCTimeout(f *testing.F) {
	units := map[string]time.Duration{
		"H": time.Hour, "M": time.Minute, "S": time.Second, "m": time.Millisecond, "u": time.Microsecond, "n": time.Nanosecond,
	}
	fuzzTime(f, "grpc-timeout", func(s string) (d time.Duration) {
		for letter, unit := range units {
			d = max(d, number(s, `\A([0-9]{1,8})`+letter+`\z`, unit))
		}
		return d
	}, "1S", "100m", "25H", "99999999n")
}

func FuzzUrgency(f *testing.F) {
	for _, s := range []string{"u=7", "u=0, i", "i, u=7", "u=7, u=7", "u=7,", "U=7", "u=7;q"} {
		f.Add(s)
	}
	member := `[ \t]*(?:i|i=\?[01]|(u=[0-7]))[ \t]*`
	form, found := regexp.MustCompile(`\A`+member+`(?:,`+member+`)*\z`), regexp.MustCompile(`u=[0-7]`)
	f.Fuzz(func(t *testing.T, s string) {
		want := Headers{}
		if u := found.FindAllString(s, -1); form.MatchString(s) && len(u) == 1 && u[0] == "u=7" {
			want = Headers{Priority: decision.Background, HasPriority: true}
		}
		if got := (headers{"priority": {s}}).read(); got != want {
			t.Fatalf("%q: %+v, want %+v", s, got, want)
		}
	})
}

func FuzzPriority(f *testing.F) {
	for _, s := range []string{"critical", "-128", "127", "+1", "128", "", "99999999999999999999", "٣"} {
		f.Add(s)
	}
	names := map[string]decision.Priority{"background": -64, "normal": 0, "high": 64, "critical": 127}
	form := regexp.MustCompile(`\A(-?[0-9]{1,3}|[0-9]{4})\z`)
	f.Fuzz(func(t *testing.T, s string) {
		want := Headers{}
		if p, named := names[s]; named {
			want = Headers{Priority: p, HasPriority: true}
		} else if form.MatchString(s) {
			var n int
			if _, err := fmt.Sscanf(s, "%d", &n); err == nil && n >= -128 && n <= 127 {
				want = Headers{Priority: decision.Priority(n), HasPriority: true}
			}
		}
		if got := (headers{PriorityGRPC: {s}}).read(); got != want {
			t.Fatalf("%q: %+v, want %+v", s, got, want)
		}
	})
}

// RPC libraries read what Read ignores: then they would set a deadline of which nobody knows that it is the client's.
func TestUndatedHidesWhatReadIgnores(t *testing.T) {
	for name, forms := range map[string][][]string{
		"Connect-Timeout-Ms": {{"100"}, {"100", "100"}, {"0000000100"}, {"+100"}, {"-100"}, {"0"}, {""}},
		"Grpc-Timeout":       {{"100m"}, {"100m", "100m"}, {"0000000100m"}, {"+100m"}, {"-100m"}, {"0m"}, {""}},
	} {
		for _, values := range forms {
			headers := map[string][]string{name: values, "X": nil}
			counts := Read(func(n Name) []string { return headers[n.HTTP] }).Timeout > 0
			if some, none := Undated(headers, false), Undated(headers, true); (len(some[name]) > 0) != counts || len(none) != 1 || len(headers) != 2 {
				t.Errorf("H14: %s %q: counts %t; %q and %q", name, values, counts, some, none)
			}
		}
	}
}
