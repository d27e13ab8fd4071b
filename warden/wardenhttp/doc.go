// Package wardenhttp puts net/http requests under a [warden.Warden]: on the server's side with [New], on the client's with
// [NewTransport].
package wardenhttp
