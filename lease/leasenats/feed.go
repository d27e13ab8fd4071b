// SPDX-License-Identifier: Apache-2.0

package leasenats

// A feed reads a stream through a consumer of its own, a bounded number of bytes at a time. Each request ends: the server says so, or
// the feed has failed and another one begins where it ended. So no reader waits for what was lost on the way, as one of the client's
// ordered consumers may, nor is more on the way than asked for.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// mostMessages and mostBytes bound one request: far below the 64 MiB at which a server cuts a connection that is too slow. A
	// larger message is asked for alone.
	mostMessages = 512
	mostBytes    = 256 << 10
	// allBytes bounds the requests of all partitions, of one reader each, where that leaves leastBytes for each.
	allBytes   = 4 << 20
	leastBytes = 16 << 10
	// expiry is after how long the server answers a request for which it has no message.
	expiry = 5 * time.Second
	// patience bounds a wait for an answer while a slow connection brings others.
	patience = time.Minute
	// glance is how often a wait looks whether its connection was made anew.
	glance = 250 * time.Millisecond
)

var (
	// errNothing: the server had no message for a whole expiry, or of a feed that ends has none now.
	errNothing = errors.New("the server has no message")
	// errSilent: the server has not answered. The connection may be dead.
	errSilent = errors.New("the server does not answer")
	// errAnew: what the server has sent over the connection before is lost, and it may keep no request of it.
	errAnew = errors.New("the connection was made anew")
)

// feed is used by one goroutine.
type feed struct {
	js               jetstream.JetStream // makes and deletes the consumer
	conn             *nats.Conn          // brings the messages
	sub              *nats.Subscription
	stream, consumer string
	bytes            int
	timeout          time.Duration
	pending          uint64 // messages for it when it began
	ends             bool   // it is to read what is there: the server says at once that it has no more

	inbox    string // replies to the request under way go to inbox.requests
	requests int
	left     int       // messages that it may still bring; 0: it is over
	brought  bool      // it has brought one
	alone    bool      // the next message is larger than bytes
	asked    time.Time // when it was sent
	anew     uint64    // how often the connection had been made anew by then
	sequence uint64    // of the last message, counted by the consumer
}

// openFeed makes the consumer over the connection of js, and a feed of its messages over conn, with so many bytes a request. The
// timeout is how late an answer may be.
func openFeed(ctx context.Context, js jetstream.JetStream, conn *nats.Conn, stream string, of jetstream.ConsumerConfig, bytes int,
	timeout time.Duration) (*feed, error) {
	f := &feed{js: js, conn: conn, stream: stream, bytes: bytes, timeout: timeout, inbox: conn.NewInbox()}
	var err error
	if f.sub, err = conn.SubscribeSync(f.inbox + ".*"); err != nil {
		return nil, err
	}
	// The server removes the consumer of a process that has died.
	of.AckPolicy, of.MemoryStorage, of.Replicas, of.InactiveThreshold = jetstream.AckNonePolicy, true, 1, 5*time.Minute
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	consumer, err := js.CreateConsumer(ctx, stream, of)
	if err != nil {
		_ = f.sub.Unsubscribe()
		return nil, err
	}
	f.consumer, f.pending = consumer.CachedInfo().Name, consumer.CachedInfo().NumPending
	return f, nil
}

// close deletes the consumer.
func (f *feed) close() {
	_ = f.sub.Unsubscribe()
	// Without a context, which may be done. If this is lost, the server removes the consumer later.
	_ = f.js.Conn().Publish("$JS.API.CONSUMER.DELETE."+f.stream+"."+f.consumer, nil)
}

// next returns the next message. With a wait it returns nats.ErrTimeout if none comes so soon, else errNothing when the server has
// none. After these and after ctx's error, the feed goes on; after any other it is to be closed.
func (f *feed) next(ctx context.Context, wait time.Duration) (*nats.Msg, *nats.MsgMetadata, error) {
	for {
		if f.left == 0 {
			if err := f.ask(); err != nil {
				return nil, nil, err
			}
		}
		m, err := f.receive(ctx, wait)
		if err == nil && m.Reply == "" {
			if err = f.status(m); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, nil, err
		}
		if f.sequence++; meta.Sequence.Consumer != f.sequence { // a lost message is not sent again
			return nil, nil, fmt.Errorf("message %d came in place of %d", meta.Sequence.Consumer, f.sequence)
		}
		f.left--
		f.brought, f.alone = true, m.Size() > f.bytes
		return m, meta, nil
	}
}

// ask sends a request for messages.
func (f *feed) ask() error {
	request := struct {
		Batch   int           `json:"batch"`
		Bytes   int           `json:"max_bytes,omitempty"`
		Expires time.Duration `json:"expires,omitempty"`
		NoWait  bool          `json:"no_wait,omitempty"`
	}{mostMessages, f.bytes, expiry, f.ends}
	if f.ends {
		request.Expires = 0
	}
	if f.alone {
		request.Batch, request.Bytes = 1, 0
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	f.requests++
	f.left, f.brought, f.asked, f.anew = request.Batch, false, time.Now(), f.conn.Stats().Reconnects
	return f.conn.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+f.stream+"."+f.consumer, f.reply(), data)
}

func (f *feed) reply() string { return f.inbox + "." + strconv.Itoa(f.requests) }

// receive returns what comes next.
func (f *feed) receive(ctx context.Context, wait time.Duration) (*nats.Msg, error) {
	if wait > 0 {
		return f.sub.NextMsg(wait)
	}
	for began, before := time.Now(), f.conn.Stats().InBytes; ; {
		within, cancel := context.WithTimeout(ctx, glance)
		m, err := f.sub.NextMsgWithContext(within)
		cancel()
		now := f.conn.Stats()
		switch {
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return m, err
		case now.Reconnects != f.anew:
			return nil, errAnew
		case time.Since(began) < expiry+f.timeout:
		case now.InBytes == before, time.Since(f.asked) > patience:
			return nil, errSilent
		default:
			began, before = time.Now(), now.InBytes
		}
	}
}

// status takes in what the server says about a request. Its errors are those of next.
func (f *feed) status(m *nats.Msg) error {
	if m.Subject != f.reply() { // it was over already
		return nil
	}
	status, why := m.Header.Get("Status"), m.Header.Get("Description")
	f.left = 0
	switch {
	case (status == "408" || status == "404") && !f.brought:
		return errNothing
	case status == "408", status == "404", strings.Contains(why, "Batch Completed"):
	case strings.Contains(why, "MaxBytes"):
		f.alone = !f.brought
	default:
		return fmt.Errorf("the server answers %s %s", status, why)
	}
	return nil
}
