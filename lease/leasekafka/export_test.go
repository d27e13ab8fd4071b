package leasekafka

// This file shows the tests what users have no use for.

// Seeks counts how often the members of g had a log read from another place.
func (g *Group) Seeks() int64 { return g.seeks.Load() }
