// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	"github.com/pocketbase/pocketbase/tools/filesystem"
)

func pocketbaseProgram() program { return program{"pocketbase", servePocketBase, drivePocketBase} }

func servePocketBase(addr, dir string, by shield) error {
	app := pocketbase.NewWithConfig(pocketbase.Config{DefaultDataDir: dir, HideStartBanner: true})
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.InstallerFunc = nil
		posts, open := core.NewBaseCollection("posts"), new("")
		posts.ListRule, posts.ViewRule, posts.CreateRule = open, open, open
		posts.Fields.Add(&core.TextField{Name: "title", Required: true}, &core.FileField{Name: "file", MaxSelect: 1, MaxSize: 64 << 20})
		if err := e.App.Save(posts); err != nil {
			return err
		}
		// Not uploaded: on a slow disk PocketBase works longer on so much than README's Timeout allows.
		content, err := filesystem.NewFileFromBytes(make([]byte, large), "a.bin")
		if err != nil {
			return err
		}
		content.Name = "a.bin"
		file := core.NewRecord(posts)
		file.Id = largeID
		file.Set("title", "a large file")
		file.Set("file", content)
		if err := errors.Join(e.App.Save(file), e.Next()); err != nil {
			return err
		}
		e.Server.Handler = by.around(e.Server.Handler)
		return nil
	})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	return apis.Serve(app, apis.ServeConfig{HttpAddr: addr})
}

const (
	records = "/api/collections/posts/records"
	large   = 16 << 20 // bytes of a file, more than the buffers of a connection hold
	largeID = "largefile000000"
)

// drivePocketBase opens 50 event streams within 100 ms and subscribes each, as the SDK does. Meanwhile short requests come, and
// files go up and down over thin lines.
func drivePocketBase(ctx context.Context, addr string, t *tally) error {
	const streams, posts = 50, 20
	w := newWeb(addr, t)
	var all, listening sync.WaitGroup
	for _, way := range ways() {
		all.Go(func() {
			began := time.Now()
			t.add("an upload of "+way.name, began, uploadFile(ctx, w, 300_000, way.over))
		})
		all.Go(func() {
			began := time.Now()
			err := w.download(w.request(ctx, "GET", "/api/files/posts/"+largeID+"/a.bin", nil, 0), large, way)
			t.add("a download of "+way.name, began, err)
		})
	}
	var events, subscribed atomic.Int64
	var stopped atomic.Bool
	streaming, stop := context.WithCancel(ctx)
	defer stop()
	event := func(data string) {
		var told struct {
			ClientID, Action string
			Record           struct{ Title string }
		}
		switch err := json.Unmarshal([]byte(data), &told); {
		case err == nil && told.Action == "create" && told.Record.Title == "news": // not one of the uploads
			events.Add(1)
		case err == nil && told.ClientID != "":
			subscription := fmt.Sprintf(`{"clientId":%q,"subscriptions":["posts/*"]}`, told.ClientID)
			go func() { // the SDK reads on, too
				w.send(ctx, "a subscription", short{"POST", "/api/realtime", subscription, 204})
				subscribed.Add(1)
			}()
		}
	}
	for range streams {
		listening.Go(func() { w.listen(w.request(streaming, "GET", "/api/realtime", nil, 0), &stopped, event) })
		time.Sleep(2 * time.Millisecond)
	}
	shorts := []short{
		{"GET", records, "", 200}, {"GET", records + "/none", "", 404}, {"POST", records, "{}", 400}, {"HEAD", "/api/health", "", 200},
		{"OPTIONS", records, "", 204},
	}
	w.shorts(ctx, "streams are opened", shorts...)
	wait(ctx, func() bool { return subscribed.Load() == streams })
	all.Go(func() {
		for range posts {
			w.send(ctx, "a post", short{"POST", records, `{"title":"news"}`, 200})
			time.Sleep(100 * time.Millisecond)
		}
	})
	w.shorts(ctx, "events come", shorts...)
	w.shorts(ctx, "events come", shorts...)
	wait(ctx, func() bool { return events.Load() >= streams*posts })
	t.came("an event of a stream", int(events.Load()), streams*posts)
	all.Wait() // the streams go on meanwhile
	stopped.Store(true)
	stop()
	listening.Wait()
	return nil
}

// uploadFile posts a form with a file over a line.
func uploadFile(ctx context.Context, w web, size int, over func(io.Reader, int) io.Reader) error {
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	_ = m.WriteField("title", "a file")
	file, _ := m.CreateFormFile("file", "a.bin")
	_, _ = file.Write(make([]byte, size))
	_ = m.Close()
	n := form.Len()
	_, _, err := w.expect(200, w.request(ctx, "POST", records, over(&form, n), n, "Content-Type", m.FormDataContentType()))
	return err
}
