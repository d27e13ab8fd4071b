package main

// What the program prints is part of it.

func Example() {
	main()
	// Output:
	// server, second: 503, Retry-After "1"
	// server, first: 200, Retry-After ""
	// client: a request arrived
	// client, second: refused: true
	// client: a request arrived
	// client, third: 200, Retry-After ""
}
