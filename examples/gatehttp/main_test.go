package main

// What the program prints is part of it.

func Example() {
	main()
	// Output:
	// server, second: 503, to come back later: true
	// server, first: 200, to come back later: false
	// client: a request arrived
	// client, second: rejected: true
	// client: a request arrived
	// client, third: 200, to come back later: false
}
