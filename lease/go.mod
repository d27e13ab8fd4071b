module github.com/stopbank/stopbank/lease

go 1.25.0

require pgregory.net/rapid v1.3.0

require go.uber.org/goleak v1.3.0
