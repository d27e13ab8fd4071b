package frameworks

// echo: WrapMiddleware is all that is needed.

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Echo is the shop on echo. What a handler returns as an error is written when the place has been given back, because echo writes it
// behind all middleware; what a handler writes itself, with the place.
func Echo(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.GET("/healthz", func(c *echo.Context) error { shop.Health(c.Response(), c.Request()); return nil })
	g := e.Group("", echo.WrapMiddleware(mw.Handler))
	g.POST("/checkout/:id", func(c *echo.Context) error { shop.Checkout(c.Response(), c.Request(), c.Param("id")); return nil })
	g.GET("/reports", func(c *echo.Context) error { shop.Reports(c.Response(), c.Request()); return nil })
	return e
}
