// SPDX-License-Identifier: Apache-2.0

// What a request is: its priority, its compartment and tenant, and whether its peer is trusted.

package wardencaddy

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// PriorityRule is the priority of the requests that it matches.
type PriorityRule struct {
	// Priority is background, normal, high, critical or a number from -128 to 127, or has placeholders that become one of these
	// for each request; if they do not, the rule does not match. Do not take it from a header that any client may send.
	Priority string `json:"priority"`
	// MatcherSetsRaw are the requests; none: all.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	matchers caddyhttp.MatcherSets
}

// Compartment is a kind of requests with slots of its own.
type Compartment struct {
	// Name is its name in metrics, logs and on the console, required and unique.
	Name string `json:"name"`
	// MatcherSetsRaw are its requests. The last compartment has none: it gets what no other matches.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`
	// Guaranteed is the number of slots that belong to it, 0 or more; Lendable, of those, the number that others may use while
	// they are idle, which needs a Queue; Max the number that it may have with those of others, default: Guaranteed.
	Guaranteed int `json:"guaranteed,omitempty"`
	Lendable   int `json:"lendable,omitempty"`
	Max        int `json:"max,omitempty"`
	// Queue is the maximum number of waiting requests, with tenants of each, and 1 or more; default: 0, nobody waits.
	Queue int `json:"queue,omitempty"`
	// MaxWait bounds the wait, and Timeout the time after that, 10 µs or more; default: MaxWait as Timeout, and Timeout
	// unlimited.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`
	Timeout caddy.Duration `json:"timeout,omitempty"`
	// Priority is background, normal, high, critical or -128 to 127: which compartment below its guarantee comes first.
	Priority string `json:"priority,omitempty"`
	// Tenant has placeholders whose value for a request is its tenant, such as {http.auth.user.id}: something that was checked, since
	// who invents keys has as many shares. TenantMax is the number of slots of one tenant, 1 or more. Neither or both: while all
	// slots are taken, tenants get the same share of their time. Requests without a value are one tenant together, with those that
	// have a header, query parameter or cookie of the placeholder itself more than once.
	Tenant    string `json:"tenant,omitempty"`
	TenantMax int    `json:"tenant_max,omitempty"`

	matchers caddyhttp.MatcherSets
}

// loadMatchers loads the matchers of a field into sets.
func loadMatchers(ctx caddy.Context, of any, field string, sets *caddyhttp.MatcherSets) error {
	loaded, err := ctx.LoadModule(of, field)
	if err != nil {
		return err
	}
	return sets.FromInterface(loaded)
}

// matches reports whether r is matched. A matcher that fails, such as an expression about a value of another type, does not match.
func (h *Handler) matches(sets caddyhttp.MatcherSets, r *http.Request) bool {
	matched, err := sets.AnyMatchWithError(r)
	if err != nil {
		h.logger.Error("stopbank: a matcher failed", zap.Error(err))
	}
	return err == nil && matched
}

// priority returns that of the first rule for r.
func (h *Handler) priority(r *http.Request) decision.Priority {
	for i := range h.Priorities {
		rule := &h.Priorities[i]
		if !h.matches(rule.matchers, r) {
			continue
		}
		text := rule.Priority
		if dynamic(text) {
			text = valueOf(text, r)
		}
		if p, ok := priorityOf(text); ok {
			return p
		}
	}
	return decision.Normal
}

// compartment returns that of the first one for r.
func (h *Handler) compartment(set *bulkhead.Set, r *http.Request) *bulkhead.Compartment {
	for i := range h.Compartments {
		c := &h.Compartments[i]
		if !h.matches(c.matchers, r) {
			continue
		}
		found := set.Compartment(c.Name)
		if c.Tenant == "" {
			return found
		}
		return found.Tenant(tenantOf(c.Tenant, r))
	}
	return nil // not reached: the last one has no matchers
}

// tenantOf is a tenant. Where there are several placeholders, the end of each value shows: 1 and 2 are not 12 and nothing.
func tenantOf(text string, r *http.Request) string {
	switch strings.Count(text, "{") {
	case 0:
		return text
	case 1:
		return valueOf(text, r)
	}
	said := false
	key := replaced(text, r, func(value any) any {
		text := caddy.ToString(value)
		said = said || text != ""
		return url.QueryEscape(text) + ";"
	})
	if !said {
		return ""
	}
	return key
}

// valueOf returns a text with the values of its placeholders.
func valueOf(text string, r *http.Request) string {
	return replaced(text, r, func(value any) any { return value })
}

// replaced returns a text with as(value) in place of each placeholder. It is empty if one of them is that of a header, a parameter or
// a cookie that the client has sent more than once: which of them counts, the upstream may see otherwise.
func replaced(text string, r *http.Request, as func(value any) any) string {
	text, err := replacerOf(r).ReplaceFunc(text, func(placeholder string, value any) (any, error) {
		if times(placeholder, r) > 1 {
			return nil, errAmbiguous
		}
		return as(folded(placeholder, value, r)), nil
	})
	if err != nil {
		return ""
	}
	return text
}

// folded returns the value of a placeholder that a client can spell in several ways, in one.
func folded(placeholder string, value any, r *http.Request) any {
	of, _ := strings.CutPrefix(placeholder, "http.request.")
	switch kind, name, _ := strings.Cut(of, "."); kind {
	case "header":
		text := strings.TrimSpace(caddy.ToString(value)) // HTTP/2 has spaces around it, which no HTTP/1 upstream sees
		if strings.EqualFold(name, "Authorization") {
			return credentials(text)
		}
		return text
	case "host", "hostport": // whose port is no part of a site's name
		if n, numbered := strings.CutPrefix(of, "host.labels."); numbered {
			return label(hostOf(r.Host), n)
		}
		return hostOf(caddy.ToString(value))
	case "cookie":
		return strings.TrimSpace(unescaped(caddy.ToString(value))) // PHP and others decode it, also what is no code
	}
	return value
}

// credentials returns those of a request in one spelling: their scheme has no case, any spaces may follow it, and base64 is lenient
// (RFC 9110, 11.4).
func credentials(text string) string {
	if user, password, ok := (&http.Request{Header: http.Header{"Authorization": {text}}}).BasicAuth(); ok {
		return "basic " + user + ":" + password
	}
	scheme, rest, _ := strings.Cut(text, " ")
	return strings.TrimSpace(strings.ToLower(scheme) + " " + strings.TrimSpace(rest))
}

// hostOf returns a host's name, however it is spelled.
func hostOf(text string) string {
	if name, _, err := net.SplitHostPort(text); err == nil {
		text = name
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimRight(text, "."))
}

// label returns the label of a host's name with this number, from the right.
func label(host, number string) string {
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(labels) {
		return labels[n]
	}
	return ""
}

var errAmbiguous = errors.New("stopbank: a placeholder has several values")

// times returns how often r has what a placeholder stands for, as any upstream may read it: some take a query's ; for &, some know no
// case, and PHP has names of its own, see [named]. 0: it stands for nothing that can be repeated.
func times(placeholder string, r *http.Request) (n int) {
	of, _ := strings.CutPrefix(placeholder, "http.request.")
	kind, name, _ := strings.Cut(strings.TrimPrefix(of, "uri."), ".")
	var pairs iter.Seq[string]
	switch kind {
	case "header":
		return len(r.Header.Values(name)) // Caddy drops those with _ or . for -
	case "query":
		pairs = strings.FieldsFuncSeq(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' })
	case "cookie": // net/http leaves out what other servers take
		pairs = strings.SplitSeq(strings.Join(r.Header["Cookie"], ";"), ";")
	default:
		return 0
	}
	name = named(name)
	for pair := range pairs {
		key, _, _ := strings.Cut(pair, "=")
		key = unescaped(key)
		inRack, _, _ := strings.Cut(strings.TrimLeft(key, "[]"), "]") // which begins a name behind them
		inRack, _, _ = strings.Cut(inRack, "[")
		if strings.EqualFold(named(key), name) || strings.EqualFold(named(inRack), name) {
			n++
		}
	}
	return n
}

// inPHP replaces what no variable's name has in PHP.
var inPHP = strings.NewReplacer(" ", "_", ".", "_", "[", "_") //nolint:gochecknoglobals // constant

// named returns the name of a parameter or cookie as PHP reads it (php_register_variable_ex in main/php_variables.c): it ends at a NUL
// and has no spaces in front; what [ and a later ] follow is an array; other spaces, dots and [ are _.
func named(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimSpace(name) // others leave out those behind it too
	if array, index, is := strings.Cut(name, "["); is && strings.Contains(index, "]") {
		name = array
	}
	return inPHP.Replace(name)
}

// unescaped decodes the part of a URL as PHP does, which leaves alone what is no code.
func unescaped(text string) string {
	if !strings.ContainsAny(text, "%+") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '+' {
			c = ' '
		}
		if c == '%' && i+2 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				c, i = byte(n), i+2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// replacerOf returns the placeholders of r.
func replacerOf(r *http.Request) *caddy.Replacer {
	if of, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		return of
	}
	return caddy.NewReplacer() // a request that Caddy's server has not prepared
}

// dynamic reports whether a text has placeholders.
func dynamic(text string) bool { return strings.Contains(text, "{") }

// priorityOf parses a priority: a name or a number.
func priorityOf(text string) (decision.Priority, bool) {
	for _, p := range []decision.Priority{decision.Background, decision.Normal, decision.High, decision.Critical} {
		if text == p.String() {
			return p, true
		}
	}
	n, err := strconv.ParseInt(text, 10, 8)
	return decision.Priority(n), err == nil
}

const (
	privateRanges = "private_ranges" // as in Caddy's trusted_proxies
	networks      = "addresses and networks, such as 10.0.0.0/8 or fd00::/8, or " + privateRanges
)

// prefixes are networks.
type prefixes []netip.Prefix

// parsePrefixes parses networks and addresses.
func parsePrefixes(texts []string) (all prefixes, err error) {
	if i := slices.Index(texts, privateRanges); i >= 0 {
		texts = slices.Concat(texts[:i], caddyhttp.PrivateRangesCIDR(), texts[i+1:])
	}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, alone := netip.ParseAddr(text); alone == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, invalid("trusted", fmt.Sprintf("%.140q", text), networks)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// has reports whether the connection of r comes from one of them.
func (p prefixes) has(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false // a Unix socket has no address
	}
	a := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}
