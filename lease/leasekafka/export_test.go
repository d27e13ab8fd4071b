package leasekafka

// Seeks counts how often the members of g had a log read from another place.
func (g *Group) Seeks() int64 { return g.seeks.Load() }
