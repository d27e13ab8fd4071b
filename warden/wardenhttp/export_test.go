// SPDX-License-Identifier: Apache-2.0

// The draws that spread Retry-After, for tests.

package wardenhttp

// WithRand returns cfg with the draws of a test.
func WithRand(cfg Config, rand func() float64) Config {
	cfg.rand = rand
	return cfg
}
