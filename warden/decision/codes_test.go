// SPDX-License-Identifier: Apache-2.0

// A mode in JSON is its code.

package decision_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestModeText(t *testing.T) {
	for _, mode := range []decision.Mode{decision.Enforce, decision.DryRun, decision.Bypass} {
		text, err := json.Marshal(mode)
		var back decision.Mode
		if err != nil || json.Unmarshal(text, &back) != nil || back != mode {
			t.Errorf("%s: %s, %v, %s", mode, text, err, back)
		}
	}
	kept := decision.Bypass
	_, err := json.Marshal(decision.Bypass + 1)
	for _, err := range []error{err, json.Unmarshal([]byte(`"off"`), &kept)} {
		if !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	if kept != decision.Bypass {
		t.Errorf("%s is not kept", kept)
	}
}
