module github.com/stopbank/stopbank/lease/leasetest

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/stopbank/stopbank/lease v0.0.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

replace github.com/stopbank/stopbank/lease => ../
