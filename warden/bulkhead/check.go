// SPDX-License-Identifier: Apache-2.0

// Validation of configurations and plans.

package bulkhead

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/unit"
)

const (
	maxSlots    = 1_000_000
	maxKeys     = 1_000_000
	defaultKeys = 10_000
)

// check returns the first plan, or an error for the first invalid field.
func (cfg *Config) check() (Plan, error) {
	plan := Plan{Revision: 1, Total: cfg.Total}
	if len(cfg.Compartments) == 0 {
		return plan, invalidField("Config.Compartments", "empty", "one compartment or more")
	}
	if err := checkObserver("Config.Observer", cfg.Observer); err != nil {
		return plan, err
	}
	for i, c := range cfg.Compartments {
		if err := c.check(fieldOf("Config", i, c.Name)); err != nil {
			return plan, err
		}
		plan.Compartments = append(plan.Compartments, Share{c.Name, c.Guaranteed, c.Lendable, c.Max, c.Mode, c.MaxQueue, c.MaxWait,
			c.Timeout})
	}
	err := plan.check("Config", func(i int) *CompartmentConfig { return &cfg.Compartments[i] })
	return plan, err
}

// fieldOf returns the beginning of the field names of a compartment: by its name, or by its index if it has none.
func fieldOf(of string, i int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s.Compartments[%d].", of, i)
	}
	return fmt.Sprintf("%s.Compartments[%q].", of, name)
}

// check validates the fields that are not part of a plan.
func (c *CompartmentConfig) check(field string) error {
	t, noBreaker, noFallback := c.Tenants, nilcheck.Optional(c.Breaker), nilcheck.Optional(c.Fallback)
	switch {
	case c.Name == "":
		return invalidField(field+"Name", `""`, "a name")
	case c.MaxFallback < 0:
		return invalidField(field+"MaxFallback", c.MaxFallback, "0 (the default, as Max) or more")
	case noFallback != "":
		return invalidField(field+"Fallback", noFallback, "nil (no fallback) or FallbackOf a function")
	case noBreaker != "":
		return invalidField(field+"Breaker", noBreaker, "nil (no breaker) or a breaker")
	case t.Max < 0 || t.Max > maxSlots:
		return invalidField(field+"Tenants.Max", t.Max, "0 (no tenants) to 1000000")
	case t.Keys < 0 || t.Keys > maxKeys:
		return invalidField(field+"Tenants.Keys", t.Keys, "1 to 1000000, or 0 (the default, 10000)")
	case (t.Keys > 0 || t.Weight != nil) && t.Max == 0:
		return invalidField(field+"Tenants.Max", 0, "1 or more, because Tenants.Keys or Tenants.Weight is set")
	}
	return nil
}

// defaults returns c with its zero values replaced by the defaults.
func (c *CompartmentConfig) defaults() CompartmentConfig {
	d := *c
	if d.MaxFallback == 0 {
		d.MaxFallback = max(d.Max, d.Guaranteed)
	}
	if d.Tenants.Max > 0 && d.Tenants.Keys == 0 {
		d.Tenants.Keys = defaultKeys
	}
	return d
}

// check validates the plan and fills in each Max that is 0. config returns that of the i-th compartment.
func (p *Plan) check(field string, config func(int) *CompartmentConfig) error {
	if len(p.By) > longestBy || !utf8.ValidString(p.By) {
		return invalidField(field+".By", fmt.Sprintf("%.140q", p.By), "at most 128 bytes of UTF-8")
	}
	if p.Total < 1 || p.Total > maxSlots {
		return invalidField(field+".Total", p.Total, "1 to 1000000")
	}
	sum := 0
	for i := range p.Compartments {
		sh := &p.Compartments[i]
		if slices.ContainsFunc(p.Compartments[:i], func(s Share) bool { return s.Name == sh.Name }) {
			return invalidField(fmt.Sprintf("%s.Compartments[%d].Name", field, i), fmt.Sprintf("%q", sh.Name),
				"a name that no other compartment has")
		}
		if err := sh.check(fieldOf(field, i, sh.Name), p.Total, config(i)); err != nil {
			return err
		}
		sum += sh.Guaranteed
	}
	if sum > p.Total {
		return invalidField(field+".Compartments: the sum of Guaranteed", sum, fmt.Sprintf("at most Total (%d)", p.Total))
	}
	return nil
}

func (sh *Share) check(field string, total int, c *CompartmentConfig) error {
	for _, f := range []struct {
		name, zero string
		value      time.Duration
	}{{"MaxWait", "as Timeout", sh.MaxWait}, {"Timeout", "none", sh.Timeout}} {
		if allowed := unit.Allowed(f.value, unit.Process, 0, "0 ("+f.zero+")"); allowed != "" {
			return invalidField(field+f.name, f.value, allowed)
		}
	}
	switch {
	case sh.MaxQueue < 0:
		return invalidField(field+"MaxQueue", sh.MaxQueue, "0 (nobody waits) or more")
	case sh.MaxWait > 0 && sh.MaxQueue == 0:
		return invalidField(field+"MaxWait", sh.MaxWait, "0 without MaxQueue: no call waits")
	case c.Breaker != nil && sh.MaxQueue > 0 && breakerOpen(c.Breaker) == nil:
		return invalidField(field+"Breaker", fmt.Sprintf("a %T, which cannot say that it is open", c.Breaker),
			"with a MaxQueue, one with IsOpen() bool or gobreaker's State(): calls would queue behind an open breaker")
	case c.Tenants.Max > 0 && sh.MaxQueue == 0:
		return invalidField(field+"MaxQueue", 0, "1 or more, because Tenants is set and a tenant below its fair share waits for it")
	case sh.Guaranteed < 0 || sh.Guaranteed > total:
		return invalidField(field+"Guaranteed", sh.Guaranteed, fmt.Sprintf("0 to Total (%d)", total))
	case sh.Lendable < 0 || sh.Lendable > sh.Guaranteed:
		return invalidField(field+"Lendable", sh.Lendable, fmt.Sprintf("0 to Guaranteed (%d)", sh.Guaranteed))
	case sh.Lendable > 0 && sh.MaxQueue == 0:
		return invalidField(field+"Lendable", sh.Lendable,
			"0, or more with a MaxQueue: a caller whose slot is lent waits for it in the queue")
	case sh.Mode > decision.Bypass:
		return invalidField(field+"Mode", uint8(sh.Mode), "Enforce, DryRun or Bypass")
	case sh.Max == 0:
		sh.Max = sh.Guaranteed
	}
	if sh.Max == 0 {
		return invalidField(field+"Max", 0, fmt.Sprintf("1 to Total (%d), or 0 with a Guaranteed above 0: a compartment needs a slot",
			total))
	}
	if sh.Max < max(1, sh.Guaranteed) || sh.Max > total {
		return invalidField(field+"Max", sh.Max, fmt.Sprintf("%d to Total (%d)", max(1, sh.Guaranteed), total))
	}
	return nil
}
