module github.com/stopbank/stopbank/internal/system

go 1.25.0

require github.com/google/go-cmp v0.7.0
