package leasenats

// This file opens List to its tests.

// ListAgain makes s write down what a List found after so many changes.
func ListAgain(s *Store, changes int) *Store {
	s.listAgain = changes
	return s
}

// Listing is the subject of what a List writes down.
func Listing(s *Store) string { return s.listing }
