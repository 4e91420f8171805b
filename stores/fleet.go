package stores

import (
	"context"
	"time"
)

// Fleet is a [Shared] store through which instances tell each other what they count.
type Fleet interface {
	Shared

	// Instance identifies this process among the instances of Fleet.
	Instance() uint64

	// Look tells all instances to write their figures for the next seconds. They come within some
	// milliseconds.
	Look(ctx context.Context) error

	// Fleet returns the figures that instances wrote in the last seconds, by instance.
	Fleet(ctx context.Context) (map[uint64]Figures, error)
}

// Figures are what an instance wrote of itself.
type Figures struct {
	Age  time.Duration // since it did
	Text []byte        // what [FleetObserver] returned there
}

// MaxFigures is how many bytes the figures of an instance have at most.
const MaxFigures = 64 << 10

// FleetObserver is an [Observer] that knows the figures of this instance.
type FleetObserver interface {
	// Figures returns what other instances are shown of this one, of at most [MaxFigures] bytes.
	Figures() []byte
}
