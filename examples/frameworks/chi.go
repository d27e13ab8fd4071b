package frameworks

// chi: a Group runs its middleware when the route is known.

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Chi is the shop on chi. Use on the router itself would come before the routing, where there is no pattern yet.
func Chi(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Get("/healthz", shop.Health) // outside of the group: it never waits
	r.Group(func(r chi.Router) {
		r.Use(mw.Handler)
		r.Post("/checkout/{id}", func(w http.ResponseWriter, r *http.Request) { shop.Checkout(w, r, chi.URLParam(r, "id")) })
		r.Get("/reports", shop.Reports)
	})
	return r
}
