// Gatehttp is the admission layer around HTTP: a server that answers one report at a time and rejects the next with
// 503, and a client that opens one response of a dependency at a time and does not send the next request.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func main() {
	if err := errors.Join(serverSide(), clientSide()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serverSide() error {
	gate, err := admission.New(admission.Config{Name: "reports", Limit: 1})
	if err != nil {
		return err
	}
	started, finish := make(chan struct{}), make(chan struct{})
	report := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { started <- struct{}{}; <-finish })
	handler, err := admissionhttp.NewHandler(report, admissionhttp.HandlerConfig{Gate: gate})
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	first := make(chan error)
	go func() { first <- get(http.DefaultClient, server.URL, "server, first") }()
	<-started
	second := get(http.DefaultClient, server.URL, "server, second")
	close(finish)
	return errors.Join(second, <-first)
}

func clientSide() error {
	dependency := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("client: a request arrived")
		fmt.Fprint(w, "some rows")
	}))
	defer dependency.Close()
	gate, err := admission.New(admission.Config{Name: "dependency", Limit: 1})
	if err != nil {
		return err
	}
	transport, err := admissionhttp.NewTransport(admissionhttp.TransportConfig{Gate: gate})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}

	first, err := client.Get(dependency.URL)
	if err != nil {
		return err
	}
	err = get(client, dependency.URL, "client, second") // in flight until the first response is read or closed
	fmt.Println("client, second: rejected:", errors.Is(err, admission.ErrRejected))
	if err := first.Body.Close(); err != nil {
		return err
	}
	return get(client, dependency.URL, "client, third")
}

// get prints the status of one request, and whether the server says when to come back.
func get(client *http.Client, url, name string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d, to come back later: %t\n", name, resp.StatusCode, resp.Header.Get("Retry-After") != "")
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
