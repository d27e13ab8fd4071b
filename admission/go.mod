module github.com/stopbank/stopbank/admission

go 1.25.0
