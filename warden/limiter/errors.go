// SPDX-License-Identifier: Apache-2.0

// The error of an invalid argument.

package limiter

import (
	"github.com/stopbank/stopbank/warden/decision"
)

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "limiter." + field, Value: value, Allowed: allowed}
}
