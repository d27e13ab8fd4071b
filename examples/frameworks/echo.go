package frameworks

// echo: an adapter, because echo answers returned errors and panics after all middleware, through the writer that it had inside.

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Echo returns the shop on echo.
func Echo(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.GET("/healthz", func(c *echo.Context) error { shop.Health(c.Response(), c.Request()); return nil })
	g := e.Group("", WrapEcho(mw))
	g.POST("/checkout/:id", func(c *echo.Context) error { shop.Checkout(c.Response(), c.Request(), c.Param("id")); return nil })
	g.GET("/reports", func(c *echo.Context) error { shop.Reports(c.Response(), c.Request()); return nil })
	return e
}

// WrapEcho turns mw into an echo middleware. An error that a handler returns is answered while the request holds its slot, so that
// a status of 500 counts as a failure; unless the request's context has ended, because mw then answers.
func WrapEcho(mw *wardenhttp.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		guarded := echo.WrapMiddleware(mw.Handler)(func(c *echo.Context) error {
			err := next(c)
			if err == nil || c.Request().Context().Err() != nil {
				return err
			}
			c.Echo().HTTPErrorHandler(c, err)
			return nil
		})
		return func(c *echo.Context) error {
			defer c.SetResponse(c.Response()) // for the answer to a panic
			return guarded(c)
		}
	}
}
