package frameworks

// The shop that each framework serves.

import (
	"fmt"
	"io"
	"net/http"
)

// Shop has three handlers of net/http.
type Shop struct {
	// Sell is the work of a checkout. Tests let it fail, panic or hijack the connection.
	Sell func(w http.ResponseWriter, r *http.Request, id string) error
}

// Health is a liveness probe.
func (Shop) Health(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }

// Checkout sells the order with this id.
func (s Shop) Checkout(w http.ResponseWriter, r *http.Request, id string) {
	if err := s.Sell(w, r, id); err != nil {
		http.Error(w, "not sold", http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, "sold %s", id)
}

// Reports is work that can wait.
func (Shop) Reports(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a report") }
