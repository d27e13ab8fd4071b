package main

// What the program prints is part of it.

import "os"

func Example() {
	if err := show(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// 200 served /products
	// 200 served /refund
	// 503 {"title":"Service Unavailable","status":503,"reason":"closed","decision":0,"request_id":"4bf92f3577b34da6"}
	//
	// recorded: 4bf92f3577b34da6 /products closed
}
