package limiter

// dice is a fast random number generator for sampling keys, and for the IDs of errors, which
// are no secrets: the upper bits of a linear congruential generator with the constants of Knuth's
// MMIX. It must be seeded with a random number.
type dice uint64

// throw returns random bits.
func (d *dice) throw() uint32 {
	*d = *d*6364136223846793005 + 1442695040888963407
	return uint32(*d >> 32)
}
