package main

// What the program prints is part of it.

import "os"

func Example() {
	if err := run(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// 200 "served /products"
	// 200 "served /refund"
	// 503 "closed\n"
	// recorded: /products closed
}
