// SPDX-License-Identifier: Apache-2.0

// A decision in a log has all its parts, in text and in JSON.

package decision

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
)

func TestADecisionLogsAllOfItself(t *testing.T) {
	var text, asJSON bytes.Buffer
	full := ControlDecision{
		Seq: 7, At: time.Unix(1, 0).UTC(), TargetConcurrency: 12, ShedProbability: .25,
		Reasons:  []Reason{NewReason("queueing", "lag_p90_seconds", 0.012, Tighten), NewReason("busy", "utilization", .9, Hold)},
		ValidFor: time.Second, Expected: 4 * time.Millisecond, Yields: 3, Needs: map[string]time.Duration{"b": 2, "a": time.Second},
		Parts: map[string]Part{"fine": {TargetConcurrency: 9},
			"slow": {TargetConcurrency: 3, Reasons: []Reason{NewReason("service_slow", "x", 2, Tighten)}}},
		Stale: &ControlDecision{TargetConcurrency: 5, ShedProbability: math.NaN(), Stale: &ControlDecision{}},
	}
	for _, d := range []any{full, &full} { // by value, and as explanations hold it
		text.Reset()
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "d", d)
		for _, want := range []string{
			"d.seq=7 ", "d.at=1970-01-01T00:00:01.000Z ", "d.target=12 ", "d.shed=0.25 ",
			`d.reasons="[queueing: lag_p90_seconds=0.012 (tighten) busy: `,
			"d.valid_for=1s ", "d.expected=4ms ", "d.needs.a=1s d.needs.b=2ns ",
			`d.needs.b=2ns d.parts.slow="3, service_slow: x=2 (tighten)" d.yields=3 `, "d.stale.target=5 ", "d.stale.shed=NaN",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%q lacks %q", text.String(), want)
			}
		}
	}

	slog.New(slog.NewJSONHandler(&asJSON, nil)).Info("m", "d", full)
	var line struct {
		D struct {
			Reasons []string
			Stale   struct{ Target int }
		}
	}
	if err := json.Unmarshal(asJSON.Bytes(), &line); err != nil || len(line.D.Reasons) != 2 ||
		line.D.Reasons[1] != full.Reasons[1].String() || line.D.Stale.Target != 5 {
		t.Errorf("%v: %s", err, asJSON.Bytes())
	}

	text.Reset()
	slog.New(slog.NewTextHandler(&text, nil)).Info("m", "d", ControlDecision{})
	if !strings.HasSuffix(text.String(), "msg=m d.seq=0 d.target=0 d.shed=0\n") {
		t.Errorf("the zero decision: %q", text.String())
	}
}
