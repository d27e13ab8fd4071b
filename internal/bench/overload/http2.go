// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The part of HTTP/2 that the generator needs: requests without bodies, their cancellation, and complete responses.

package main

import (
	"encoding/binary"
	"errors"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const frameHead = 9

// frames is the HTTP/2 state of one connection.
type frames struct {
	next    uint32 // stream
	decoder *hpack.Decoder
	status  map[uint32]int // status of responses whose bodies are incomplete
}

func newFrames() frames {
	return frames{next: 1, decoder: hpack.NewDecoder(4096, nil), status: map[uint32]int{}}
}

func frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), byte(flags)}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// preface opens a connection with windows of 1 MB per stream and 2 GB in all, which need no updates later.
func preface() []byte {
	settings := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(http2.SettingInitialWindowSize)), 1<<20)
	b := append([]byte(http2.ClientPreface), frame(http2.FrameSettings, 0, 0, settings)...)
	return append(b, frame(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1-1<<16))...)
}

// headersFrame is an encoded request, whose stream begin fills in. It uses no index and no compression, so it is the same on
// every connection.
func headersFrame(path string) []byte {
	literal := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	b := []byte{0x82, 0x86} // GET, http
	b = literal(append(b, 0x04), path)
	b = literal(append(b, 0x01), "lab")
	b = literal(literal(append(b, 0x00), "overdue"), noTime)
	return frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 0, b)
}

func resetFrame(stream uint32) []byte {
	return frame(http2.FrameRSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(http2.ErrCodeCancel)))
}

// begin gives a request the next stream.
func (f *frames) begin(request []byte) (stream uint32) {
	stream = f.next
	f.next += 2
	binary.BigEndian.PutUint32(request[5:], stream)
	return stream
}

// take parses the complete frames in the buffer of c, calls done for each response (status 0: reset), and returns the reply to
// the server.
func (f *frames) take(c *conn, done func(stream uint32, status int)) (reply []byte, err error) {
	b := c.buf[:c.n]
	for len(b) >= frameHead {
		length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if len(b) < frameHead+length {
			break
		}
		kind, flags, stream := http2.FrameType(b[3]), http2.Flags(b[4]), binary.BigEndian.Uint32(b[5:])
		payload := b[frameHead : frameHead+length]
		b = b[frameHead+length:]
		switch kind {
		case http2.FrameHeaders:
			fields, err := f.decoder.DecodeFull(payload)
			if err != nil || len(fields) == 0 || !flags.Has(http2.FlagHeadersEndHeaders) {
				return nil, errors.Join(err, errors.New("unreadable headers"))
			}
			f.status[stream], _ = strconv.Atoi(fields[0].Value) // pseudo-headers come first, and :status is the only one
		case http2.FrameRSTStream:
			delete(f.status, stream)
			done(stream, 0)
			continue
		case http2.FrameSettings:
			if !flags.Has(http2.FlagSettingsAck) {
				reply = append(reply, frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)...)
			}
			continue
		case http2.FramePing:
			if !flags.Has(http2.FlagPingAck) {
				reply = append(reply, frame(http2.FramePing, http2.FlagPingAck, 0, payload)...)
			}
			continue
		case http2.FrameGoAway:
			return nil, errors.New("the server goes away")
		case http2.FrameData:
		default:
			continue
		}
		if flags.Has(http2.FlagDataEndStream) { // the same bit in HEADERS
			done(stream, f.status[stream])
			delete(f.status, stream)
		}
	}
	c.n = copy(c.buf, b)
	return reply, nil
}
