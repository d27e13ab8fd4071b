module github.com/stopbank/stopbank/internal/system

go 1.25.0

replace (
	github.com/stopbank/stopbank/admission => ../../admission
	github.com/stopbank/stopbank/lease => ../../lease
	github.com/stopbank/stopbank/warden => ../../warden
)

require (
	github.com/google/go-cmp v0.7.0
	github.com/stopbank/stopbank/admission v0.0.0
	github.com/stopbank/stopbank/lease v0.0.0
	github.com/stopbank/stopbank/warden v0.0.0
)
