module github.com/stopbank/stopbank/internal/system

go 1.25.0
