// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func registryProgram() program { return program{"registry", serveRegistry, driveRegistry} }

func serveRegistry(addr, dir string, by shield) error {
	cfg, err := configuration.Parse(strings.NewReader(strings.NewReplacer("DIR", dir, "ADDR", addr).Replace(`
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: DIR}, maintenance: {uploadpurging: {enabled: false}}}
http: {addr: ADDR}
`)))
	if err != nil {
		return err
	}
	registry.RegisterHandler(func(_ *configuration.Configuration, next http.Handler) http.Handler { return by.around(next) })
	server, err := registry.NewRegistry(context.Background(), cfg)
	if err != nil {
		return err
	}
	return server.ListenAndServe()
}

// driveRegistry pushes ten images at once over thin lines and pulls a large one, by the client of crane and ko, while short
// requests come.
func driveRegistry(ctx context.Context, addr string, t *tally) error {
	const pushes, small, large = 10, 300_000, 16 << 20
	w := newWeb(addr, t)
	if err := push(ctx, addr, "large", large, w.Transport); err != nil {
		return err
	}
	var all sync.WaitGroup
	for n := range pushes {
		way := ways()[0]
		if n == 0 {
			way = ways()[1]
		}
		all.Go(func() {
			began := time.Now()
			err := push(ctx, addr, "small"+strconv.Itoa(n), small, slowPatches{w.Transport, way})
			t.add("a push of "+way.name, began, statusOf(err))
		})
	}
	for _, way := range ways() {
		all.Go(func() {
			began := time.Now()
			err := pull(ctx, addr, "large", large, w.Transport, way)
			t.add("a pull of "+way.name, began, statusOf(err))
		})
	}
	w.shorts(ctx, "pushes begin", short{"GET", "/v2/", "", 200}, short{"GET", "/v2/large/tags/list", "", 200}, short{"HEAD", "/v2/large/manifests/latest", "", 404},
		short{"GET", "/v2/large/manifests/none", "", 404}, short{"POST", "/v2/large/blobs/uploads/", "", 202})
	all.Wait()
	return nil
}

// once are the options of a client that does not try again, so that nothing is hidden.
func once(ctx context.Context, by http.RoundTripper) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(by), remote.WithRetryStatusCodes(),
		remote.WithRetryPredicate(func(error) bool { return false }),
	}
}

func push(ctx context.Context, addr, repository string, size int, by http.RoundTripper) error {
	image, err := random.Image(int64(size), 1)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(addr + "/" + repository + ":v1")
	if err != nil {
		return err
	}
	return remote.Write(tag, image, once(ctx, by)...)
}

func pull(ctx context.Context, addr, repository string, size int, by http.RoundTripper, w way) error {
	tag, err := name.NewTag(addr + "/" + repository + ":v1")
	if err != nil {
		return err
	}
	image, err := remote.Image(tag, once(ctx, by)...)
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	body, err := layers[0].Compressed() // it checks the digest
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, w.over(body, size))
	_ = body.Close()
	return err
}

// slowPatches sends the bodies of PATCH, which are the layers, over a line.
type slowPatches struct {
	http.RoundTripper
	way way
}

func (s slowPatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && r.ContentLength > 1000 { // not the image's configuration
		slow := r.Clone(r.Context())
		slow.Body = struct {
			io.Reader
			io.Closer
		}{s.way.over(r.Body, int(r.ContentLength)), r.Body}
		r = slow
	}
	return s.RoundTripper.RoundTrip(r)
}

// statusOf is the status in an error of the client.
func statusOf(err error) error {
	var refused *transport.Error
	if errors.As(err, &refused) {
		return unexpected(refused.StatusCode)
	}
	return err
}
