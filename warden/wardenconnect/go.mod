module github.com/stopbank/stopbank/warden/wardenconnect

go 1.25.0

require (
	connectrpc.com/connect v1.21.0
	github.com/google/go-cmp v0.7.0
	github.com/stopbank/stopbank/warden v0.1.0
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800
	google.golang.org/protobuf v1.36.12
)
