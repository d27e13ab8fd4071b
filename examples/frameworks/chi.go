package frameworks

// chi: the middleware of a Group runs after routing, when the route's pattern is known.

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Chi returns the shop on chi. Middleware of the router itself (Use) would run before routing, when there is no pattern yet.
func Chi(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Get("/healthz", shop.Health) // outside the group: it never queues
	r.Group(func(r chi.Router) {
		r.Use(mw.Handler)
		r.Post("/checkout/{id}", func(w http.ResponseWriter, r *http.Request) { shop.Checkout(w, r, chi.URLParam(r, "id")) })
		r.Get("/reports", shop.Reports)
	})
	return r
}
