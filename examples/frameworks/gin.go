package frameworks

// gin: an adapter, because gin has a ResponseWriter of its own and continues its chain unless a middleware aborts it.

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Gin returns the shop on gin.
func Gin(mw *wardenhttp.Middleware, shop Shop) http.Handler {
	e := gin.New()
	e.Use(gin.CustomRecovery(func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	e.GET("/healthz", func(c *gin.Context) { shop.Health(c.Writer, c.Request) })
	g := e.Group("", Wrap(mw))
	g.POST("/checkout/:id", func(c *gin.Context) { shop.Checkout(c.Writer, c.Request, c.Param("id")) })
	g.GET("/reports", func(c *gin.Context) { shop.Reports(c.Writer, c.Request) })
	return e
}

// Wrap turns mw into a gin middleware. The rest of the chain runs while the request holds a slot, and not at all if it was
// rejected.
func Wrap(mw *wardenhttp.Middleware) gin.HandlerFunc {
	type key struct{}
	next := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(key{}).(*gin.Context)
		outer := c.Writer
		defer func() { c.Writer = outer }()
		c.Request, c.Writer = r, writer{outer, w}
		c.Next()
	}))
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		next.ServeHTTP(c.Writer, c.Request.WithContext(context.WithValue(c.Request.Context(), key{}, c)))
		c.Abort() // the rest of the chain has run already, or must not run because the request was rejected
	}
}

// writer is gin's writer over the middleware's writer, which therefore sees a Hijack and keeps the slot until the connection
// closes.
type writer struct {
	gin.ResponseWriter // records status and size
	w                  http.ResponseWriter
}

func (w writer) Unwrap() http.ResponseWriter         { return w.w }
func (w writer) WriteHeader(status int)              { w.w.WriteHeader(status) }
func (w writer) Write(b []byte) (int, error)         { return w.w.Write(b) }
func (w writer) WriteString(s string) (int, error)   { return io.WriteString(w.w, s) }
func (w writer) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.w, r) }
func (w writer) Flush()                              { _ = http.NewResponseController(w.w).Flush() }
func (w writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.w).Hijack()
}
