package adaptive

import "github.com/dianalimiter/diana/stores/hash"

// Verdict is where a request is.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota // it has no place, and does not wait
	Waits
	Placed // it holds a place
)

// Ticket is a request that asks for a place. See [NewTicket].
type Ticket struct {
	Key  hash.Key // of its client
	Band int      // 0 to Bands - 1

	verdict Verdict
	sample  Sample
	retry   int64 // us, if it is Refused

	flow  *flow // of its key; nil: it has a place, and nobody could wait for one then
	tag   int64
	cost  int64      // what its key was charged for it
	order uint64     // of arrival
	at    [kinds]int // in the heaps of the band

	next *Ticket // of those to tell
	told chan struct{}
}

// Retry returns an estimate of the time until a request that was refused would have a place, in microseconds: the
// time in which as many requests end as waited before it.
func (t *Ticket) Retry() int64 { return t.retry }

// NewTicket returns a ticket, which may be used again once it is Refused or its place given back.
func NewTicket() *Ticket { return &Ticket{told: make(chan struct{}, 1)} }

// Verdict returns where the request is. It requires that the request does not wait, or was told.
func (t *Ticket) Verdict() Verdict { return t.verdict }

// Told receives once a request that waited has a place, or was refused one.
func (t *Ticket) Told() <-chan struct{} { return t.told }

// Next returns the next of the tickets that a method of Places returned; nil: there is none.
func (t *Ticket) Next() *Ticket { return t.next }

// Tell tells requests that waited.
func Tell(told *Ticket) {
	for t := told; t != nil; {
		next := t.next // who is told may use the ticket again
		t.told <- struct{}{}
		t = next
	}
}
