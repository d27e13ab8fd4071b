package frameworks

// echo: echo.WrapMiddleware is enough.

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Echo returns the shop on echo. Echo writes returned errors after all middleware, when the slot has been released; a response
// that the handler writes itself holds the slot.
func Echo(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.GET("/healthz", func(c *echo.Context) error { shop.Health(c.Response(), c.Request()); return nil })
	g := e.Group("", echo.WrapMiddleware(mw.Handler))
	g.POST("/checkout/:id", func(c *echo.Context) error { shop.Checkout(c.Response(), c.Request(), c.Param("id")); return nil })
	g.GET("/reports", func(c *echo.Context) error { shop.Reports(c.Response(), c.Request()); return nil })
	return e
}
