// SPDX-License-Identifier: Apache-2.0

// The app: the wardens of one configuration, from its start to its end.

package wardencaddy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

const appName = "stopbank"

func init() { caddy.RegisterModule(new(App)) } //nolint:gochecknoinits // as Caddy finds modules

// App holds the wardens of one configuration. Handlers make it; it has nothing to configure.
type App struct {
	ctx      caddy.Context
	wardens  map[string]*used // by name
	consoles []*Console
}

// used is a warden of a configuration.
type used struct {
	*shared
	key      string // in the pool
	settings *settings
}

// CaddyModule returns the name of the module.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: appName, New: func() caddy.Module { return new(App) }}
}

// appOf returns the app of a configuration.
func appOf(ctx caddy.Context) (*App, error) {
	a, err := ctx.App(appName)
	if err != nil {
		return nil, err
	}
	return a.(*App), nil //nolint:forcetypeassert // nobody else has the name
}

// Provision makes the app ready for use.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.wardens = ctx, map[string]*used{}
	return nil
}

// join gives h its warden: that of another handler with its name, of the configuration before, or a new one. What h changes in it
// is in force when the app starts.
func (a *App) join(h *Handler) (*shared, error) {
	next, err := h.settings(a.ctx.Slogger())
	if err != nil {
		return nil, err
	}
	if of, known := a.wardens[h.Name]; known {
		if of.settings.text != next.text {
			return nil, invalid("name", fmt.Sprintf("%q, of two handlers that differ in more than timeout, priority, exempt, trusted "+
				"and grace", h.Name), "a name of its own for each")
		}
		return of.shared, nil
	}
	key := h.fixed()
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return start(h, next) })
	if err != nil {
		return nil, err
	}
	s := v.(*shared) //nolint:forcetypeassert // the pool has nothing else
	a.wardens[h.Name] = &used{s, key, next}
	return s, nil
}

// Start puts the configuration in force. The error says which console has no warden.
func (a *App) Start() error {
	for _, c := range a.consoles {
		if _, err := c.open(nil); err != nil {
			return err
		}
	}
	sources := wardenprom.Config{Wardens: map[string]*warden.Warden{}, Sets: map[string]*bulkhead.Set{}}
	registry := a.ctx.GetMetricsRegistry()
	for name, of := range a.wardens {
		if err := of.use(of.settings); err != nil {
			return err
		}
		if sources.Wardens[name] = of.warden; of.set != nil {
			sources.Sets[name] = of.set
		}
		if err := wardenprom.Register(registry, of.events); err != nil {
			return err
		}
	}
	collector, err := wardenprom.New(sources)
	if err != nil {
		return err
	}
	return wardenprom.Register(registry, collector)
}

// Stop does nothing: requests of the configuration still run.
func (*App) Stop() error { return nil }

// Cleanup leaves the wardens, which end unless the next configuration has them. Requests that run or wait are not affected.
func (a *App) Cleanup() (err error) {
	for _, of := range a.wardens {
		dropped := of.drop(of.settings)
		_, ended := pool.Delete(of.key)
		err = errors.Join(err, dropped, ended)
	}
	return err
}

// find returns the warden with this name, or the only one if it is "".
func (a *App) find(name string) (string, *shared, error) {
	names := slices.Sorted(maps.Keys(a.wardens))
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if of := a.wardens[name]; of != nil {
		return name, of.shared, nil
	}
	if len(names) == 0 {
		return "", nil, consoleField("name", name, "nothing without a stopbank in the same configuration")
	}
	return "", nil, consoleField("name", name, "the name of a stopbank: "+strings.Join(names, ", "))
}

// Interfaces that Caddy looks for.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
