// SPDX-License-Identifier: Apache-2.0

// Caddyfiles with each field wrong: the error names the line, the field and what is allowed.

package wardencaddy_test

import (
	"strings"
	"testing"
)

func TestInvalidCaddyfile(t *testing.T) {
	const begin = ":8080 {\nstopbank {\n" // the fields begin in line 3
	for _, c := range []struct{ text, line, field, value, allowed string }{
		{begin + "name a b\n}\n}\n", ":3", "name", "a b", "one name"},
		{begin + "name " + strings.Repeat("n", 129) + "\n}\n}\n", ":3", "name", "nnn", "1 to 128 bytes"},
		{":8080 {\nstopbank a b\n}\n", ":2", "name", "a b", "one name"},
		{begin + "queue 9\nqueue 9\n}\n}\n", ":4", "queue", "given twice", "once"},
		{begin + "timeout soon\n}\n}\n", ":3", "timeout", "soon", "a duration, such as"},
		{begin + "timeout\n}\n}\n", ":3", "timeout", `""`, "a duration, such as"},
		{begin + "timeout 1us\n}\n}\n", ":3", "timeout", "1µs", "1ms or more"},
		{begin + "grace -1s\n}\n}\n", ":3", "grace", "-1s", "1ms or more"},
		{begin + "queue many\n}\n}\n", ":3", "queue", "many", "a whole number"},
		{begin + "queue -1\n}\n}\n", ":3", "queue", "-1", "1 or more"},
		{begin + "min 0.5\n}\n}\n", ":3", "min", "0.5", "a whole number"},
		{begin + "min -2\n}\n}\n", ":3", "min", "-2", "1 to "},
		{begin + "min 9\nmax 3\n}\n}\n", ":4", "max", "3", "min (9) to "},
		{begin + "max 3\ninitial 4\n}\n}\n", ":4", "initial", "4", "min (1) to max (3)"},
		{begin + "mode off\n}\n}\n", ":3", "mode", "off", "enforce, dry_run or bypass"},
		{begin + "priority\n}\n}\n", ":3", "priority", `""`, "background, normal, high, critical"},
		{begin + "priority high\npriority urgent /x\n}\n}\n", ":4", "priority 2", "urgent", "background, normal, high, critical"},
		{begin + "priority 128\n}\n}\n", ":3", "priority 1", "128", "-128 to 127"},
		{begin + "priority high path /x\n}\n}\n", ":3", "priority", "path /x", "a matcher: @name"},
		{begin + "exempt\n}\n}\n", ":3", "exempt", `""`, "a matcher: @name"},
		{begin + "exempt healthz\n}\n}\n", ":3", "exempt", "healthz", "a matcher: @name"},
		{begin + "trusted\n}\n}\n", ":3", "trusted", `""`, "addresses and networks"},
		{begin + "trusted 10.0.0.0/8\n\n trusted 10.0.0.0/99\n}\n}\n", ":5", "trusted", "10.0.0.0/99", "addresses and networks"},
		{begin + "limit 3\n}\n}\n", ":3", "option", "limit", "name, timeout, queue"},
		{begin + "name \"\"\n}\n}\n", ":3", "name", `""`, "1 to 128 bytes"},
		{begin + "queue 0\n}\n}\n", ":3", "queue", `"0"`, "1 or more; a thousand if it is left out"},
		{begin + "priority /x critical\n}\n}\n", ":3", "priority 1", "/x", "a matcher behind it"},
		{begin + "priority high\npriority critical /x\n}\n}\n", ":4", "priority 2", "critical", "priority 1 has no matcher"},
		{begin + "priority high @nope\n}\n}\n", ":3", "stopbank: priority: ", "@nope", "unrecognized matcher"},
		{begin + "total 3\n}\n}\n", ":3", "total", "3", "nothing without a compartment"},
		{begin + "total 3\npriority high\ncompartment a\n}\n}\n", ":4", "priority 1", "high", "each has its own"},
		{begin + "queue 3\ntotal 3\ncompartment a\n}\n}\n", ":3", "queue", "3", "each has its own"},
		{begin + "compartment\n}\n}\n", ":3", "compartment", `""`, "a name"},
		{begin + "total 0\ncompartment a {\nguaranteed 1\n}\n}\n}\n", ":3", "total", "0", "1 to 1000000"},
		{begin + "total 2\ncompartment a\ncompartment b\n}\n}\n", ":4", "compartment a", "without a matcher", "except for the last one"},
		{begin + "total 2\ncompartment a /x\n}\n}\n", ":4", "compartment a", "the last one", "none"},
		{begin + "total 2\ncompartment a /x\ncompartment a\n}\n}\n", ":5", "compartment a", "given twice", "a name of its own"},
		{begin + "total 2\ncompartment a x\n}\n}\n", ":4", "compartment a", `"x"`, "a matcher: @name"},
		{begin + "total 2\ncompartment a {\nguaranteed 3\n}\n}\n}\n", ":5", "compartment a: guaranteed", "3", "0 to total (2)"},
		{begin + "total 2\ncompartment a {\nguaranteed x\n}\n}\n}\n", ":5", "compartment a: guaranteed", "x", "a whole number"},
		{begin + "total 2\ncompartment a {\nguaranteed 2\nlendable 3\n}\n}\n}\n", ":6", "compartment a: lendable", "3", "0 to guaranteed (2)"},
		{begin + "total 2\ncompartment a {\nguaranteed 2\nmax 1\n}\n}\n}\n", ":6", "compartment a: max", "1", "2 to total (2)"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\nqueue -1\n}\n}\n}\n", ":6", "compartment a: queue", "-1", "0 (nobody waits) or more"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\nmax_wait 1s\n}\n}\n}\n", ":6", "compartment a: max_wait", "1s", "0 without queue"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\ntimeout 1ns\n}\n}\n}\n", ":6", "compartment a: timeout", "1ns", "10µs or more"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\npriority urgent\n}\n}\n}\n", ":6", "compartment a: priority", "urgent", "background"},
		{begin + "tenant key\n}\n}\n", ":3", "tenant", "key", "a placeholder"},
		{begin + "tenant {x}\ntotal 2\ncompartment a {\nguaranteed 1\n}\n}\n}\n", ":3", "tenant", "{x}", "nothing beside compartments"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\ntenant {x}\n}\n}\n}\n", ":6", "compartment a: tenant", "{x}", "the number of slots"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\ntenant {x} 0\n}\n}\n}\n", ":6", "compartment a: tenant", "0", "1 or more slots"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\nqueue 1\ntenant key 1\n}\n}\n}\n", ":7", "compartment a: tenant", "key", "a placeholder"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\ntenant {x} 1\n}\n}\n}\n", ":4", "compartment a: queue", "0", "1 or more, because tenant"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\nslots 1\n}\n}\n}\n", ":6", "compartment a: option", "slots", "guaranteed, lendable"},
		{begin + "total 2\ncompartment a {\nguaranteed 1\nguaranteed 1\n}\n}\n}\n", ":6", "compartment a: guaranteed", "given twice", "once"},
		{begin + "max 1\ntotal 2\ncompartment a {\nguaranteed 1\n}\n}\n}\n", ":3", "max", "1", "total (2) or more"},
		{":8080 {\nstopbank_console a b\n}\n", ":2", "name", "b", "one name"},
		{":8080 {\nstopbank_console {\nhost a\n}\n}\n", ":3", "option", "host", "hosts"},
		{":8080 {\nstopbank_console {\nhosts\n}\n}\n", ":3", "hosts", `""`, "host names without ports"},
		{":8080 {\nstopbank_console {\nhosts ops:80\n}\n}\n", ":3", "Hosts[0]", "ops:80", "without a port"},
	} {
		_, err := adapt(c.text)
		if err == nil {
			t.Errorf("%q: no error", c.text)
			continue
		}
		if !strings.HasSuffix(c.field, ": ") { // else the error is Caddy's
			c.field += " is "
		}
		for _, want := range []string{"Caddyfile" + c.line, c.field, c.value, c.allowed} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v\nwithout %q", c.text, err, want)
			}
		}
	}
}

// A Caddyfile with every field is accepted as it was meant.
func TestWholeCaddyfile(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, `stopbank {
		name shop
		timeout 2s
		queue 100
		min 2
		max 64
		initial 4
		mode enforce
		priority critical /checkout
		priority {header.Tier}
		priority background
		exempt /healthz
		exempt /readyz
		trusted 10.0.0.0/8 192.0.2.1 private_ranges
		grace 5s
	}
	@other path /other/*
	stopbank @other other {
		total 10
		compartment a /other/a {
			guaranteed 4
			lendable 2
			max 6
			queue 5
			max_wait 1s
			timeout 2s
			priority high
			tenant {header.Key} 2
		}
		compartment b {
			max 10
		}
	}
	`+u.proxied())
	p.want("/x", 200)
	p.want("/other/a", 200)
	for _, label := range []string{`limiter="shop"`, `compartment="a"`} {
		name := "stopbank_limiter_running"
		if strings.HasPrefix(label, "compartment") {
			name = "stopbank_compartment_in_flight"
		}
		if !strings.Contains(p.want("/metrics", 200).body, name+"{"+label) {
			t.Errorf("no %s{%s", name, label)
		}
	}
}
