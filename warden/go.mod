module github.com/stopbank/stopbank/warden

go 1.25.0
