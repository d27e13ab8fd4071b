// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/centrifugal/centrifuge-go"
	"github.com/golang-jwt/jwt/v5"
)

func centrifugoProgram() program { return program{"centrifugo", serveCentrifugo, driveCentrifugo} }

// serveCentrifugo builds the command Centrifugo, as released, and serves it through a reverse proxy, which has the shield around
// it: Centrifugo lets nobody in. Requests wait for it meanwhile.
func serveCentrifugo(addr, dir string, by shield) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	build := exec.Command("sh", "-c", `GOBIN="$PWD/../../../bin" go install github.com/centrifugal/centrifugo/v6@v6.9.1`)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	behind, err := freeAddr()
	if err != nil {
		return err
	}
	host, port, _ := strings.Cut(behind, ":")
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{
		"log": {"level": "error"}, "http_server": {"address": %q, "port": %s}, "http_api": {"insecure": true}, "uni_sse": {"enabled": true},
		"client": {"token": {"hmac_secret_key": "secret"}}, "channel": {"without_namespace": {"presence": true}}
	}`, host, port), 0o600); err != nil {
		return err
	}
	server := exec.Command("sh", "-c", `../../../bin/centrifugo -c "$0" & cat; kill $!; wait`, config) // it dies as we do
	server.Stdin, server.Stdout, server.Stderr = os.Stdin, os.Stderr, os.Stderr
	if err := server.Start(); err != nil {
		return err
	}
	if err := reachable(context.Background(), behind); err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	return (&http.Server{Handler: by.around(proxy), ReadHeaderTimeout: time.Minute}).Serve(l)
}

// driveCentrifugo opens 150 WebSockets and 150 event streams, two in 10 ms, in a channel in which much is published, and then
// publishes what each of them must get, the last of it after a pause. In the end half of them leave, and the server ends the others.
func driveCentrifugo(ctx context.Context, addr string, t *tally) error {
	const each, news = 150, 20
	w := newWeb(addr, t)
	if _, _, err := w.expect(404, w.request(ctx, "GET", "/none", nil, 0)); err != nil {
		return err
	}
	var (
		sse, ws, ended     atomic.Int64
		stopped            atomic.Bool
		sending, listening sync.WaitGroup
		sockets            []*client.Client
	)
	staying, stop := context.WithCancel(ctx)
	defer stop()
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	sending.Go(func() {
		for n := range each {
			user, until := "stays", staying
			if n < each/2 {
				user, until = "leaves", leaving
			}
			claims := jwt.MapClaims{"sub": user, "channels": []string{"news"}}
			token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte("secret"))
			socket := client.NewJsonClient("ws://"+addr+"/connection/websocket", client.Config{Token: token})
			socket.OnPublication(func(e client.ServerPublicationEvent) { ws.Add(int64(strings.Count(string(e.Data), "news!"))) })
			lives(t, socket, &stopped, &ended)
			sockets = append(sockets, socket)
			go func() { _ = socket.Connect() }()
			listening.Go(func() {
				path := "/connection/uni_sse?cf_connect=" + url.QueryEscape(fmt.Sprintf(`{"token":%q}`, token))
				w.listen(w.request(until, "GET", path, nil, 0), &stopped, func(data string) { sse.Add(int64(strings.Count(data, "news!"))) })
				ended.Add(1)
			})
			time.Sleep(10 * time.Millisecond)
		}
	})
	publish := func(data string) short {
		return short{"POST", "/api/publish", fmt.Sprintf(`{"channel":"news","data":%q}`, data), 200}
	}
	shorts := []short{{"GET", "/api/publish", "", 405}, {"GET", "/none", "", 404}, publish("old")}
	for range 3 {
		w.shorts(ctx, "streams are opened", shorts...)
	}
	sending.Wait()
	wait(ctx, func() bool { return w.present(ctx) == 2*each })
	sending.Go(func() {
		for n := range news {
			if n == news-1 {
				time.Sleep(ways()[1].pause)
			}
			w.send(ctx, "a publication", publish("news!"))
			time.Sleep(100 * time.Millisecond)
		}
	})
	for range 4 {
		w.shorts(ctx, "publications come", shorts...)
	}
	sending.Wait()
	wait(ctx, func() bool { return sse.Load() >= each*news && ws.Load() >= each*news })
	t.came("a publication over an event stream", int(sse.Load()), each*news)
	t.came("a publication over a WebSocket", int(ws.Load()), each*news)
	stopped.Store(true)
	leave()
	for _, socket := range sockets[:each/2] {
		socket.Close()
	}
	wait(ctx, func() bool { return w.present(ctx) == each })
	t.came("an end by a client that the server sees", 2*each-w.present(ctx), each)
	w.send(ctx, "an end by the server", short{"POST", "/api/disconnect", `{"user":"stays"}`, 200})
	wait(ctx, func() bool { return ended.Load() == 2*each })
	t.came("an end by the server that a client sees", int(ended.Load())-each, each)
	stop()
	for _, socket := range sockets[each/2:] {
		socket.Close()
	}
	listening.Wait()
	return nil
}

// present is how many clients Centrifugo has.
func (w web) present(ctx context.Context) (n int) {
	const channel = `{"channel":"news"}`
	body, _, _ := w.expect(200, w.request(ctx, "POST", "/api/presence_stats", strings.NewReader(channel), len(channel)))
	_, _ = fmt.Sscanf(string(body), `{"result":{"num_clients":%d`, &n)
	return n
}

// lives counts whether a WebSocket is opened and lives on, although the client hides it by connecting again.
func lives(t *tally, socket *client.Client, stopped *atomic.Bool, ends *atomic.Int64) {
	began, whats := time.Now(), make(chan string, 2)
	whats <- "a WebSocket is opened"
	whats <- "a WebSocket lives on"
	count := func(err error) {
		select {
		case what := <-whats:
			t.add(what, began, err)
		default:
		}
	}
	ended := func() {
		if stopped.Load() {
			count(nil)
		} else {
			count(errors.New("ended early"))
		}
	}
	socket.OnConnected(func(client.ConnectedEvent) { count(nil) })
	socket.OnError(func(e client.ErrorEvent) { count(e.Error) })
	socket.OnConnecting(func(e client.ConnectingEvent) {
		if e.Code != 0 { // not the first time
			ended()
		}
	})
	socket.OnDisconnected(func(client.DisconnectedEvent) {
		ended()
		ends.Add(1)
	})
}
