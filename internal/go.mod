module github.com/stopbank/stopbank/internal

go 1.25.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/google/go-cmp v0.7.0
	github.com/stopbank/stopbank/admission v0.1.0
	github.com/stopbank/stopbank/lease v0.1.0
	github.com/stopbank/stopbank/warden v0.1.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace (
	github.com/stopbank/stopbank/admission => ../admission
	github.com/stopbank/stopbank/lease => ../lease
	github.com/stopbank/stopbank/warden => ../warden
)
