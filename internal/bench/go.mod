module github.com/stopbank/stopbank/internal/bench

go 1.25.0

replace github.com/stopbank/stopbank/admission => ../../admission

replace github.com/stopbank/stopbank/lease => ../../lease

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/stopbank/stopbank/admission v0.0.0
	github.com/stopbank/stopbank/lease v0.0.0
	golang.org/x/perf v0.0.0-20250813145418-2f7363a06fe1
	golang.org/x/sync v0.22.0
)

require github.com/influxdata/tdigest v0.0.1 // indirect

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/stopbank/stopbank/warden v0.0.0
)

replace github.com/stopbank/stopbank/warden => ../../warden
