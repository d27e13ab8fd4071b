package main

// What the program prints is part of it, on however many processors; and that what it does is real work.

import (
	"bytes"
	"image/jpeg"
	"os"
	"testing"
)

func Example() {
	if err := run(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// pictures, while all video places are busy: 8
	// API calls, while all video places are busy: 50
	// videos, beyond their places: 0 that have ended: 0
	// videos that were stopped, beyond their places: 3
	// frames: true
}

// TestPoolsFitTheProcessors: work that burns processors never has more places than there are, but for the one of each kind that
// it needs to get on at all.
func TestPoolsFitTheProcessors(t *testing.T) {
	for _, processors := range []int{1, 2, 3, 8, 64} {
		s, err := open(processors)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		burning := 0
		for _, share := range s.set.Plan().Compartments {
			if share.Max < 1 || share.Max != share.Guaranteed {
				t.Errorf("%d processors: %+v", processors, share)
			}
			if share.Name != "api" {
				burning += share.Max
			}
		}
		if burning != max(2, processors) {
			t.Errorf("%d processors: %d places for work that burns them", processors, burning)
		}
	}
}

// TestEncode: what is written is a picture, and the next frame is another one.
func TestEncode(t *testing.T) {
	var first, second bytes.Buffer
	for n, b := range []*bytes.Buffer{&first, &second} {
		if err := encode(b, n); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the film stands still")
	}
	picture, err := jpeg.Decode(&first)
	if err != nil || picture.Bounds().Dx() != side || picture.Bounds().Dy() != side {
		t.Error(err)
	}
}
