// SPDX-License-Identifier: Apache-2.0

// Bad input is rejected with the one error type of the module.

package control

import (
	"github.com/stopbank/stopbank/warden/decision"
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "control." + field, Value: value, Allowed: allowed}
}
