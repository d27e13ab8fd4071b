module github.com/stopbank/stopbank/internal/sim

go 1.25.0

replace github.com/stopbank/stopbank/warden => ../../warden

require (
	github.com/google/go-cmp v0.7.0
	github.com/stopbank/stopbank/warden v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/influxdata/tdigest v0.0.1 // indirect
)
