// The work itself: a picture that is generated and encoded as JPEG, which takes a processor and nothing else.
package main

import (
	"image"
	"image/color"
	"image/jpeg"
	"io"
)

// side is the width and the height of a picture, in pixels.
const side = 256

// encode writes the nth picture of a film.
func encode(w io.Writer, n int) error {
	picture := image.NewRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			picture.SetRGBA(x, y, color.RGBA{R: uint8(x ^ y), G: uint8(x + n), B: uint8(y - n), A: 255})
		}
	}
	return jpeg.Encode(w, picture, nil)
}
