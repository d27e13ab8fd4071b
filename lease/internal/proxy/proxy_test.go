// SPDX-License-Identifier: Apache-2.0

// A client that connects while the proxy closes: no connection may be left open.

package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestProxyClosesLateClients(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p, err := New(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	late, client := net.Pipe()
	defer client.Close()
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // before it is closed: a closed pipe has no deadline
		t.Fatal(err)
	}
	go p.serve(late)
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the late client: %v, want it closed", err)
	}
}
