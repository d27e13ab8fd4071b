module github.com/stopbank/stopbank/internal/sim

go 1.25.0

replace github.com/stopbank/stopbank/warden => ../../warden

require github.com/stopbank/stopbank/warden v0.0.0
