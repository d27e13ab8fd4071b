// SPDX-License-Identifier: Apache-2.0

// The operators' page, on a route.

package wardencaddy

import (
	"context"
	"iter"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/stopbank/stopbank/warden/console"
)

func init() { //nolint:gochecknoinits // as Caddy finds modules
	caddy.RegisterModule(new(Console))
	httpcaddyfile.RegisterHandlerDirective("stopbank_console", parseConsole)
	httpcaddyfile.RegisterDirectiveOrder("stopbank_console", httpcaddyfile.Before, "reverse_proxy")
}

// Console is the console of one warden. It shows the names of tasks, loads and limits, and has no authentication: put it on an
// address that only operators reach. Its path is "/": handle_path removes a prefix.
type Console struct {
	// Name is the name of the [Handler] whose warden it shows; default: the only one.
	Name string `json:"name,omitempty"`
	// Hosts are the host names, without ports, under which browsers may open it, besides IP addresses and localhost; "*": any.
	Hosts []string `json:"hosts,omitempty"`

	app *App

	mu     sync.Mutex // guards all below
	page   *console.Console
	closed bool
	knows  map[*http.Server]bool // servers that close the page when they shut down
}

// CaddyModule returns the name of the module.
func (*Console) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.stopbank_console", New: func() caddy.Module { return new(Console) }}
}

// check returns a mistake in the configuration.
func (c *Console) check() error {
	nothing := func(context.Context) iter.Seq2[console.DeadLetter, error] { return nil }
	_, err := console.New(console.Config{Hosts: c.Hosts, DeadLetters: nothing})
	return err
}

// Provision makes the console ready for use. Its warden may be provisioned later.
func (c *Console) Provision(ctx caddy.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	c.knows = map[*http.Server]bool{}
	var err error
	if c.app, err = appOf(ctx); err == nil {
		c.app.consoles = append(c.app.consoles, c)
	}
	return err
}

// Cleanup ends open pages, which come back under the next configuration.
func (c *Console) Cleanup() error {
	c.close()
	return nil
}

func (c *Console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.page != nil {
		c.page.Close()
	}
}

// open returns the page, which is made when all handlers of the configuration have been provisioned. server, if not nil, has a
// request for it.
func (c *Console) open(server *http.Server) (*console.Console, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page == nil {
		name, of, err := c.app.find(c.Name)
		if err != nil {
			return nil, err
		}
		if c.page, err = console.New(console.Config{Title: name, Warden: of.warden, Set: of.set, Hosts: c.Hosts}); err != nil {
			return nil, err
		}
		if c.closed {
			c.page.Close()
		}
	}
	if server != nil && !c.knows[server] {
		c.knows[server] = true
		server.RegisterOnShutdown(c.close) // a page is a stream without an end, for which the server would wait
	}
	return c.page, nil
}

// ServeHTTP serves the page, its files and its data.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	page, err := c.open(server)
	if err != nil {
		return caddyhttp.Error(http.StatusNotFound, err)
	}
	page.ServeHTTP(w, r)
	return nil
}

// Interfaces that Caddy looks for.
var (
	_ caddy.Provisioner           = (*Console)(nil)
	_ caddy.CleanerUpper          = (*Console)(nil)
	_ caddyhttp.MiddlewareHandler = (*Console)(nil)
)
