// SPDX-License-Identifier: Apache-2.0

// The target: who may be flooded, and how a request is sent to it.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// agreedHeader is the header by which a target agrees: the requests per second that it accepts.
const agreedHeader = "Flood-Agreed"

// target is a service that may be flooded. Its address was resolved once: a name that means another machine later changes nothing.
type target struct {
	url    *url.URL
	client *http.Client
	most   float64 // requests per second
}

// aim returns the target of a plan; or a *LimitError if it may not be flooded.
func aim(ctx context.Context, p *plan) (*target, error) {
	host, port := p.url.Hostname(), p.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.url.Scheme]
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	ip := ips[0]
	for _, other := range ips { // a service may listen on one of the addresses of localhost only
		if other.To4() != nil {
			ip = other
			break
		}
	}
	if !ip.IsLoopback() && !p.beyond {
		return nil, &LimitError{"URL: its address", ip, "loopback; with -beyond-loopback, one that agrees by the header " + agreedHeader}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, net.JoinHostPort(ip.String(), port))
		},
		DisableCompression: true, MaxIdleConnsPerHost: mostInFlight,
		Protocols: new(http.Protocols), TLSHandshakeTimeout: 10 * time.Second,
	}
	transport.Protocols.SetHTTP1(!p.http2)
	transport.Protocols.SetHTTP2(p.http2)
	transport.Protocols.SetUnencryptedHTTP2(p.http2)
	t := &target{url: p.url, most: mostRate, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if !ip.IsLoopback() {
		if t.most, err = t.agreed(ctx, p.routes[0].path); err != nil {
			t.close()
			return nil, err
		}
	}
	return t, nil
}

// agreed asks the target once.
func (t *target) agreed(ctx context.Context, path string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.at(path), http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, mostBody))
	says := resp.Header.Get(agreedHeader)
	most, err := strconv.ParseFloat(says, 64)
	if err != nil || !(most > 0) {
		return 0, &LimitError{"the answer's header " + agreedHeader, fmt.Sprintf("%.40q", says), "the requests per second that the target agrees to"}
	}
	return min(most, mostRate), nil
}

func (t *target) at(path string) string { return t.url.Scheme + "://" + t.url.Host + path }

func (t *target) close() { t.client.CloseIdleConnections() }

// send sends a request of a route, reads all of the answer and returns its status; 0: there was none. ctx ends when the client leaves.
func (t *target) send(ctx context.Context, r *route, left time.Duration) (status int) {
	req, err := http.NewRequestWithContext(ctx, r.method, t.at(r.path), bytes.NewReader(make([]byte, r.body)))
	if err != nil {
		return 0
	}
	if r.priority != "normal" {
		req.Header.Set("Warden-Priority", r.priority)
	}
	if r.deadline > 0 {
		req.Header.Set("Warden-Timeout", strconv.FormatInt(max(1, min(r.deadline, left).Milliseconds()), 10))
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}
