module github.com/stopbank/stopbank/flood

go 1.25.0
