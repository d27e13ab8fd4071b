package frameworks

// The shop, as it is served by all three.

import (
	"fmt"
	"io"
	"net/http"
)

// Shop is three handlers of net/http.
type Shop struct {
	// Sell is the work of a checkout: it may take its time, fail, panic or take the connection over.
	Sell func(w http.ResponseWriter, r *http.Request, id string) error
}

// Health says that the process is there.
func (Shop) Health(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }

// Checkout sells.
func (s Shop) Checkout(w http.ResponseWriter, r *http.Request, id string) {
	if err := s.Sell(w, r, id); err != nil {
		http.Error(w, "not sold", http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, "sold %s", id)
}

// Reports reports.
func (Shop) Reports(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a report") }
