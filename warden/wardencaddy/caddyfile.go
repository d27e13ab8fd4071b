// SPDX-License-Identifier: Apache-2.0

// The directives of a Caddyfile. An error names the line, the field and what is allowed.

package wardencaddy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/stopbank/stopbank/warden"
)

// What a field of a Caddyfile may have.
const (
	aNumber   = "a whole number"
	aDuration = "a duration, such as 500ms or 2s"
	fields    = "name, timeout, queue, min, max, initial, mode, priority, tenant, exempt, trusted, grace, total or compartment"
	ofOne     = "guaranteed, lendable, max, queue, max_wait, timeout, priority or tenant"
)

// parser reads a directive and remembers where each field stands.
type parser struct {
	httpcaddyfile.Helper
	within string            // of the compartment: "compartment search: "
	lines  map[string]string // of fields: "Caddyfile:3"
}

func (p *parser) here() string { return fmt.Sprintf("%s:%d", p.File(), p.Line()) }

// field begins a field.
func (p *parser) field(name string) { p.lines[p.within+name] = p.here() }

// bad rejects the value of a field on this line.
func (p *parser) bad(field, value, allowed string) error {
	return p.located(invalid(p.within+field, fmt.Sprintf("%.140q", value), allowed))
}

// located adds the line of the field that err is about; that of the directive if it has none.
func (p *parser) located(err error) error {
	var of *warden.InvalidError
	line := p.lines[""]
	if errors.As(err, &of) {
		path := strings.TrimPrefix(of.Field, "stopbank: ")
		for path != "" && p.lines[path] == "" { // of a field that is not there, the compartment
			path = path[:max(0, strings.LastIndex(path, ": "))]
		}
		line = p.lines[path]
	}
	return fmt.Errorf("%w, at %s", err, line)
}

// one returns the only value of a field.
func (p *parser) one(field, allowed string) (string, error) {
	args := p.RemainingArgs()
	if len(args) != 1 {
		return "", p.bad(field, strings.Join(args, " "), allowed)
	}
	return args[0], nil
}

func (p *parser) number(field string, to *int) error {
	text, err := p.one(field, aNumber)
	if err != nil {
		return err
	}
	if *to, err = strconv.Atoi(text); err != nil {
		return p.bad(field, text, aNumber)
	}
	return nil
}

func (p *parser) duration(field string, to *caddy.Duration) error {
	text, err := p.one(field, aDuration)
	if err != nil {
		return err
	}
	d, err := caddy.ParseDuration(text)
	if err != nil {
		return p.bad(field, text, aDuration)
	}
	*to = caddy.Duration(d)
	return nil
}

// matcher returns the matcher at the end of a line: @name, a path or *; nil: there is none.
func (p *parser) matcher(field string) (caddyhttp.RawMatcherSets, error) {
	const allowed = "a matcher: @name, a path that begins with /, or *"
	rest := p.CountRemainingArgs()
	if rest == 0 {
		return nil, nil
	}
	set, is, err := p.MatcherToken()
	switch {
	case err != nil: // Caddy's own, of a name that is not defined
		return nil, fmt.Errorf("stopbank: %s%s: %w, at %s", p.within, field, err, p.here())
	case !is, rest > 1:
		return nil, p.bad(field, strings.Join(append([]string{p.Val()}, p.RemainingArgs()...), " "), allowed)
	case set == nil: // *
		return nil, nil
	}
	return caddyhttp.RawMatcherSets{set}, nil
}

// parseHandler reads
//
//	stopbank [<matcher>] [<name>] {
//		name     <name>
//		timeout  <duration>
//		queue    <number>
//		min      <number>
//		max      <number>
//		initial  <number>
//		mode     enforce|dry_run|bypass
//		priority <priority or placeholder> [<matcher>]
//		tenant   <placeholder>
//		exempt   <matcher>
//		trusted  <CIDR...>
//		grace    <duration>
//		total    <number>
//		compartment <name> [<matcher>] {
//			guaranteed <number>
//			lendable   <number>
//			max        <number>
//			queue      <number>
//			max_wait   <duration>
//			timeout    <duration>
//			priority   <priority>
//			tenant     <placeholder> <number>
//		}
//	}
func parseHandler(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	helper.Next() // the directive
	p := &parser{Helper: helper, lines: map[string]string{}}
	p.lines[""] = p.here()
	h := new(Handler)
	switch args := p.RemainingArgs(); len(args) {
	case 0:
	case 1:
		p.field("name")
		h.Name = args[0]
	default:
		return nil, p.bad("name", strings.Join(args, " "), "one name")
	}
	for p.NextBlock(0) {
		name := p.Val()
		twice := p.lines[name] != "" && !slices.Contains([]string{"priority", "exempt", "trusted", "compartment"}, name)
		if p.field(name); twice {
			return nil, p.located(invalid(name, "given twice", "once"))
		}
		if err := p.handlerField(h, name); err != nil {
			return nil, err
		}
	}
	if err := h.check(); err != nil {
		return nil, p.located(err)
	}
	return h, nil
}

// handlerField reads one field of the directive.
func (p *parser) handlerField(h *Handler, name string) (err error) {
	switch name {
	case "name":
		if h.Name, err = p.one(name, "one name"); h.Name == "" && err == nil {
			return p.bad(name, "", "1 to 128 bytes of UTF-8")
		}
	case "mode":
		h.Mode, err = p.one(name, "enforce, dry_run or bypass")
	case "timeout":
		err = p.duration(name, &h.Timeout)
	case "grace":
		err = p.duration(name, &h.Grace)
	case "queue":
		if err = p.number(name, &h.Queue); h.Queue == 0 && err == nil {
			return p.bad(name, "0", "1 or more; a thousand if it is left out")
		}
	case "min":
		err = p.number(name, &h.Min)
	case "max":
		err = p.number(name, &h.Max)
	case "initial":
		err = p.number(name, &h.Initial)
	case "total":
		err = p.number(name, &h.Total)
	case "trusted":
		args := p.RemainingArgs()
		if len(args) == 0 {
			return p.bad(name, "", networks)
		}
		h.Trusted = append(h.Trusted, args...)
	case "exempt":
		var sets caddyhttp.RawMatcherSets
		if p.CountRemainingArgs() == 0 {
			return p.bad(name, "", "a matcher: @name, a path that begins with /, or *")
		}
		if sets, err = p.matcher(name); sets == nil && err == nil {
			sets = caddyhttp.RawMatcherSets{caddy.ModuleMap{}} // *
		}
		h.ExemptRaw = append(h.ExemptRaw, sets...)
	case "priority":
		var rule PriorityRule
		p.field(fmt.Sprintf("priority %d", len(h.Priorities)+1))
		if !p.NextArg() {
			return p.bad(name, "", priorities)
		}
		rule.Priority = p.Val()
		if _, ok := priorityOf(rule.Priority); !ok && !dynamic(rule.Priority) { // a matcher that comes first, perhaps
			return p.bad(fmt.Sprintf("priority %d", len(h.Priorities)+1), rule.Priority, priorities+"; a matcher behind it")
		}
		rule.MatcherSetsRaw, err = p.matcher(name)
		h.Priorities = append(h.Priorities, rule)
	case "tenant":
		h.Tenant, err = p.one(name, "a placeholder, such as {http.auth.user.id}")
	case "compartment":
		var c Compartment
		c, err = p.compartment()
		h.Compartments = append(h.Compartments, c)
	default:
		p.field("option")
		return p.bad("option", name, fields)
	}
	return err
}

// compartment reads a compartment.
func (p *parser) compartment() (c Compartment, err error) {
	if !p.NextArg() {
		return c, p.bad("compartment", "", "a name")
	}
	c.Name = p.Val()
	p.within = "compartment " + c.Name
	defer func() { p.within = "" }()
	twice := p.lines[p.within] != ""
	if p.field(""); twice {
		return c, p.located(invalid(p.within, "given twice", "a name of its own for each compartment"))
	}
	if c.MatcherSetsRaw, err = p.matcher(""); err != nil {
		return c, err
	}
	p.within += ": "
	for nesting := p.Nesting(); p.NextBlock(nesting); {
		name := p.Val()
		twice := p.lines[p.within+name] != ""
		if p.field(name); twice {
			return c, p.located(invalid(p.within+name, "given twice", "once"))
		}
		switch name {
		case "guaranteed":
			err = p.number(name, &c.Guaranteed)
		case "lendable":
			err = p.number(name, &c.Lendable)
		case "max":
			err = p.number(name, &c.Max)
		case "queue":
			err = p.number(name, &c.Queue)
		case "max_wait":
			err = p.duration(name, &c.MaxWait)
		case "timeout":
			err = p.duration(name, &c.Timeout)
		case "priority":
			c.Priority, err = p.one(name, "background, normal, high, critical, or -128 to 127")
		case "tenant":
			p.field("tenant_max")
			args := p.RemainingArgs()
			if len(args) != 2 {
				return c, p.bad(name, strings.Join(args, " "), "a placeholder and the number of slots of one tenant")
			}
			c.Tenant = args[0]
			if c.TenantMax, err = strconv.Atoi(args[1]); err != nil || c.TenantMax < 1 {
				return c, p.bad(name, args[1], "1 or more slots")
			}
		default:
			p.field("option")
			err = p.bad("option", name, ofOne)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// parseConsole reads
//
//	stopbank_console [<matcher>] [<name>] {
//		hosts <name...>
//	}
func parseConsole(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	helper.Next() // the directive
	c := new(Console)
	if helper.NextArg() {
		c.Name = helper.Val()
	}
	if helper.NextArg() {
		return nil, helper.WrapErr(consoleField("name", helper.Val(), "one name"))
	}
	for helper.NextBlock(0) {
		field := helper.Val()
		if field != "hosts" {
			return nil, helper.WrapErr(consoleField("option", field, "hosts"))
		}
		if c.Hosts = append(c.Hosts, helper.RemainingArgs()...); len(c.Hosts) == 0 {
			return nil, helper.WrapErr(consoleField(field, "", "host names without ports, or * for any"))
		}
		if err := c.check(); err != nil {
			return nil, helper.WrapErr(err)
		}
	}
	return c, nil
}

func consoleField(field, value, allowed string) error {
	return &warden.InvalidError{Field: "stopbank_console: " + field, Value: fmt.Sprintf("%.140q", value), Allowed: allowed}
}
