// Package observers has the observers of stores that nobody configures any more, or yet.
package observers

import "github.com/dianalimiter/diana/stores"

// None ignores all events.
type None struct{}

// StoreUp implements [stores.Observer].
func (None) StoreUp(string, string) {}

// StoreDown implements [stores.Observer].
func (None) StoreDown(string, string, stores.Failure, error) {}

// StoreError implements [stores.Observer].
func (None) StoreError(string, stores.Failure, error) {}

// ClockSteps implements [stores.Observer].
func (None) ClockSteps(string) {}

// Live implements [stores.Observer].
func (None) Live(string, int) {}

// StoreWarning implements [stores.Observer].
func (None) StoreWarning(string, string, string) {}

// Uncharged implements [stores.Observer].
func (None) Uncharged(string, stores.Uncharged, int64) {}

// Ended is the observer of a store that no configuration has any more. It ignores what is another store's, which
// may have its name by now.
type Ended struct {
	None

	// Observer hears of cost that is not charged, now and from calls that are still under way.
	Observer stores.Observer
}

// Uncharged implements [stores.Observer].
func (e Ended) Uncharged(zone string, why stores.Uncharged, cost int64) {
	e.Observer.Uncharged(zone, why, cost)
}
