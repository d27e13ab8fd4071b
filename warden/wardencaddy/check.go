// SPDX-License-Identifier: Apache-2.0

// Bad configurations: each error names the field as the configuration calls it, its value and what is allowed.

package wardencaddy

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

const (
	defaultName = "caddy"
	longestName = 128 // bytes
	priorities  = "background, normal, high, critical, -128 to 127, or a placeholder"
)

// invalid rejects a field: its path, such as "compartment search: queue".
func invalid(field string, value any, allowed string) *warden.InvalidError {
	return &warden.InvalidError{Field: "stopbank: " + field, Value: value, Allowed: allowed}
}

// check completes the configuration and returns the first mistake in it, a [*warden.InvalidError].
func (h *Handler) check() error {
	h.Name = cmp.Or(h.Name, defaultName)
	if len(h.Name) > longestName || !utf8.ValidString(h.Name) {
		return invalid("name", fmt.Sprintf("%.140q", h.Name), "1 to 128 bytes of UTF-8")
	}
	var mode decision.Mode
	if h.Mode != "" && mode.UnmarshalText([]byte(h.Mode)) != nil {
		return invalid("mode", fmt.Sprintf("%.40q", h.Mode), "enforce, dry_run or bypass")
	}
	for i, rule := range h.Priorities {
		if _, ok := priorityOf(rule.Priority); !ok && !dynamic(rule.Priority) {
			return invalid(fmt.Sprintf("priority %d", i+1), fmt.Sprintf("%.140q", rule.Priority), priorities)
		}
		if i > 0 && len(h.Priorities[i-1].MatcherSetsRaw) == 0 && !dynamic(h.Priorities[i-1].Priority) {
			return invalid(fmt.Sprintf("priority %d", i+1), fmt.Sprintf("%.140q", rule.Priority),
				fmt.Sprintf("nothing here: priority %d has no matcher, so that no request comes this far", i))
		}
	}
	var err error
	if h.trusted, err = parsePrefixes(h.Trusted); err != nil {
		return err
	}
	if err := h.checkCompartments(); err != nil {
		return err
	}
	_, err = h.build(mode, nil, nil)
	return err
}

func (h *Handler) checkCompartments() error {
	last := len(h.Compartments) - 1
	switch {
	case last < 0 && h.Total != 0:
		return invalid("total", h.Total, "nothing without a compartment")
	case last < 0 && h.Tenant != "" && !dynamic(h.Tenant):
		return invalid("tenant", fmt.Sprintf("%.140q", h.Tenant), "a placeholder, such as {http.auth.user.id}")
	case last < 0:
		return nil
	case len(h.Priorities) > 0:
		return invalid("priority 1", fmt.Sprintf("%.140q", h.Priorities[0].Priority), "nothing beside compartments: each has its own")
	case h.Tenant != "":
		return invalid("tenant", fmt.Sprintf("%.140q", h.Tenant), "nothing beside compartments: each has its own")
	case h.Queue != 0:
		return invalid("queue", h.Queue, "nothing beside compartments: each has its own")
	}
	names := map[string]bool{}
	for i, c := range h.Compartments {
		at := "compartment " + c.Name
		if c.Name == "" || names[c.Name] {
			return invalid(fmt.Sprintf("compartment %d: name", i+1), fmt.Sprintf("%q", c.Name), "a name of its own for each compartment")
		}
		names[c.Name] = true
		_, known := priorityOf(cmp.Or(c.Priority, "normal"))
		switch {
		case i < last && len(c.MatcherSetsRaw) == 0:
			return invalid(at, "without a matcher", "a matcher, except for the last one, which gets what no other matches")
		case i == last && len(c.MatcherSetsRaw) > 0:
			return invalid(at, "the last one, with a matcher", "none: the last one gets what no other matches")
		case !known:
			return invalid(at+": priority", fmt.Sprintf("%.140q", c.Priority), "background, normal, high, critical, or -128 to 127")
		case c.Tenant != "" && !dynamic(c.Tenant):
			return invalid(at+": tenant", fmt.Sprintf("%.140q", c.Tenant), "a placeholder, such as {http.auth.user.id}")
		case c.Tenant != "" && c.TenantMax == 0:
			return invalid(at+": tenant_max", 0, "1 or more with a tenant")
		case c.Tenant == "" && c.TenantMax != 0:
			return invalid(at+": tenant_max", c.TenantMax, "nothing without a tenant")
		}
	}
	return nil
}

// parts are a warden and what belongs to it.
type parts struct {
	warden *warden.Warden
	set    *bulkhead.Set // nil without compartments
}

// build makes a warden, and its set, with these observers, for the checked fields. It starts nothing.
func (h *Handler) build(mode decision.Mode, tasks limiter.Observer, calls bulkhead.Observer) (p parts, err error) {
	cfg := warden.Config{
		Remote:  true,
		Limiter: limiter.Config{Name: h.Name, MaxQueue: h.Queue, Mode: mode, Observer: tasks},
		Control: control.Config{Min: h.Min, Max: h.Max, Initial: h.Initial},
	}
	if len(h.Compartments) > 0 {
		all := bulkhead.Config{Total: h.Total, Observer: calls}
		for _, c := range h.Compartments {
			priority, _ := priorityOf(cmp.Or(c.Priority, "normal"))
			all.Compartments = append(all.Compartments, bulkhead.CompartmentConfig{
				Name: c.Name, Guaranteed: c.Guaranteed, Lendable: c.Lendable, Max: c.Max, Mode: mode, MaxQueue: c.Queue,
				MaxWait: time.Duration(c.MaxWait), Timeout: time.Duration(c.Timeout), Criticality: priority,
				Tenants: bulkhead.TenantsConfig{Max: c.TenantMax},
			})
		}
		if p.set, err = bulkhead.New(all); err != nil {
			return parts{}, h.renamed(err)
		}
		cfg.ApplyTo = p.set
	}
	if p.warden, err = warden.New(cfg); err != nil {
		return parts{}, h.renamed(err)
	}
	if _, err = wardenhttp.New(p.warden, h.http(p.set)); err != nil {
		return parts{}, h.renamed(err)
	}
	return p, nil
}

// ofCompartment is a field of a compartment in an error of package bulkhead.
var ofCompartment = regexp.MustCompile(`Compartments\["(.*)"\]\.(\w+)`)

// renamed calls the field of a library's error by the name that it has in the configuration.
func (h *Handler) renamed(err error) error {
	var of *warden.InvalidError
	if !errors.As(err, &of) {
		return err
	}
	if m := ofCompartment.FindStringSubmatch(of.Field); m != nil {
		field := map[string]string{
			"Guaranteed": "guaranteed", "Lendable": "lendable", "Max": "max", "MaxQueue": "queue", "MaxWait": "max_wait",
			"Timeout": "timeout", "Tenants": "tenant_max", "Name": "name",
		}[m[2]]
		return invalid("compartment "+m[1]+": "+cmp.Or(field, m[2]), of.Value, words.Replace(of.Allowed))
	}
	field := of.Field
	for suffix, name := range map[string]string{
		"Control.Min": "min", "Config.Min": "min", "Control.Max": "max", "Config.Max": "max", "Control.Initial": "initial",
		"Config.Initial": "initial", "Limiter.MaxQueue": "queue", "Config.Timeout": "timeout", "Config.Grace": "grace",
		".Total": "total", "the sum of Guaranteed": "guaranteed of all compartments",
	} {
		if strings.HasSuffix(of.Field, suffix) {
			field = name
		}
	}
	return invalid(field, of.Value, words.Replace(of.Allowed))
}

// words calls fields in a text by their names in the configuration.
//
//nolint:gochecknoglobals // nobody writes it
var words = strings.NewReplacer(
	"the target's total", "total", "MaxWait", "max_wait", "Timeout", "timeout", "Guaranteed", "guaranteed", "MaxQueue", "queue", "Initial", "initial", "Tenants", "tenant", "Total", "total", "Min (", "min (",
	"Max (", "max (",
)
