// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/tus/tusd/v2/pkg/filelocker"
	"github.com/tus/tusd/v2/pkg/filestore"
	tusd "github.com/tus/tusd/v2/pkg/handler"
)

func tusdProgram() program { return program{"tusd", serveTusd, driveTusd} }

// serveTusd does as the command tusd does, whose own mux lets nobody in.
func serveTusd(addr, dir string, by shield) error {
	composer := tusd.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	filelocker.New(dir).UseIn(composer)
	files, err := tusd.NewHandler(tusd.Config{BasePath: "/files/", StoreComposer: composer})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/files/", by.around(http.StripPrefix("/files/", files)))
	return (&http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}).ListenAndServe()
}

// driveTusd begins 20 uploads at once, of which one pauses and one breaks off to be resumed, while short requests come.
func driveTusd(ctx context.Context, addr string, t *tally) error {
	const uploads, size = 20, 300_000
	w, thin := newWeb(addr, t), ways()[0]
	var all sync.WaitGroup
	for range uploads - 2 {
		all.Go(func() { t.upload(ctx, w, size, "an upload of "+thin.name, thin.over) })
	}
	all.Go(func() { t.upload(ctx, w, size, "an upload of "+ways()[1].name, ways()[1].over) })
	all.Go(func() {
		t.upload(ctx, w, size, "an upload that breaks off and is resumed", func(r io.Reader, n int) io.Reader {
			if n < size {
				return thin.over(r, n)
			}
			return io.MultiReader(thin.over(io.LimitReader(r, size/2), n), broken{})
		})
	})
	shorts := []short{{"OPTIONS", "/files/", "", 200}, {"POST", "/files/", "", 412}} // none whose lock tusd asks for every two seconds
	w.shorts(ctx, "uploads begin", shorts...)
	time.Sleep(time.Second)
	w.shorts(ctx, "uploads go on", shorts...)
	all.Wait()
	return nil
}

// upload uploads as a tus client does: it creates the upload and sends the rest until the server has all of it.
func (t *tally) upload(ctx context.Context, w web, size int, name string, over func(r io.Reader, size int) io.Reader) {
	began := time.Now()
	_, header, err := w.expect(201, w.request(ctx, "POST", "/files/", nil, 0, "Tus-Resumable", "1.0.0", "Upload-Length", strconv.Itoa(size)))
	t.add("a creation", began, err)
	if err != nil {
		return
	}
	at, tries := header.Get("Location"), 0
	for offset := 0; offset < size; tries++ {
		_, _, err := w.expect(204, w.request(ctx, "PATCH", at, over(bytes.NewReader(make([]byte, size-offset)), size-offset), size-offset,
			"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream", "Upload-Offset", strconv.Itoa(offset)))
		if tries > 0 || !errors.Is(err, errBroken) {
			t.add(name, began, err)
		}
		if tries == 10 {
			return
		}
		_, header, err = w.expect(200, w.request(ctx, "HEAD", at, nil, 0, "Tus-Resumable", "1.0.0"))
		t.add("a question for the offset", began, err)
		if err == nil {
			offset, err = strconv.Atoi(header.Get("Upload-Offset"))
		}
		if err != nil {
			return
		}
	}
}

var errBroken = errors.New("the line breaks off")

// broken is the end of a line that breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }
