module github.com/stopbank/stopbank/warden/flood

go 1.25.0
