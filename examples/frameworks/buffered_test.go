// Contexts that routers reuse between requests: a Buffered middleware leaves handlers behind, while others come.

package frameworks_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/examples/frameworks"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A Buffered middleware around a router leaves handlers behind with contexts that nobody else gets.
func TestBufferedAroundRouters(t *testing.T) {
	for name, build := range map[string]func(*wardenhttp.Middleware, frameworks.Shop) http.Handler{
		"chi": frameworks.Chi, "echo": frameworks.Echo, "gin": frameworks.Gin,
	} {
		w, err := warden.New(warden.Config{})
		if err != nil {
			t.Fatal(err)
		}
		inner, err := wardenhttp.New(w, wardenhttp.Config{Task: frameworks.Task})
		if err != nil {
			t.Fatal(err)
		}
		outer, err := wardenhttp.New(w, wardenhttp.Config{Buffered: true, Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var left sync.WaitGroup
		proceed := make(chan struct{})
		left.Add(3)
		s := httptest.NewServer(outer.Handler(build(inner, frameworks.Shop{Sell: func(w http.ResponseWriter, r *http.Request, id string) error {
			if !strings.HasPrefix(id, "L") {
				return nil
			}
			defer left.Done()
			<-proceed
			w.Header().Set("Of", id)
			r.Header.Set("Of", id)
			if !strings.HasSuffix(r.URL.Path, id) {
				t.Errorf("H32: %s: the request of %s goes on with that of %s", name, id, r.URL.Path)
			}
			return nil
		}})))
		for n := range 3 {
			if status, _, _ := send(t, http.MethodPost, s.URL+"/checkout/L"+strconv.Itoa(n)); status != http.StatusGatewayTimeout {
				t.Errorf("%s: %d", name, status)
			}
		}
		close(proceed)
		for n := range 3 {
			if status, _, body := send(t, http.MethodPost, s.URL+"/checkout/V"+strconv.Itoa(n)); body != "sold V"+strconv.Itoa(n) {
				t.Errorf("%s: %d %q", name, status, body)
			}
		}
		left.Wait()
		s.Close()
	}
}
