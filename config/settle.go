package config

import "net/http"

// Responses reads in responses what their requests cost. Only zones with settle, tokens or linger need it:
// what is in a response, only its implementation knows.
type Responses interface {
	// Settle returns how the responses settle the costs of a zone's requests.
	Settle(z *Zone) (Settle, error)

	// Ends returns a Measured that finds only the end of a stream.
	Ends(r *http.Request) Measured
}

// Settle is how the responses settle the costs of a zone's requests.
type Settle interface {
	// Placeholders returns the names of the placeholders in it, without {response.body.*}.
	Placeholders() []string

	// ReadsResponse reports whether it depends on the body of the response.
	ReadsResponse() bool

	// Estimate returns what tokens without a reserve hold for a request. ok is false if a weight has
	// no value.
	Estimate(r *http.Request) (h Hold, ok bool)

	// Bound returns what the output of tokens may cost by what the request bounds it to; 0: it does not, or its
	// weight has no value.
	Bound(r *http.Request) int64

	// Measure returns what measures the response to a request. With asks, it may change the request so that
	// the response tells its usage.
	Measure(r *http.Request, asks bool) Measured
}

// Measured is a response as it passes.
type Measured interface {
	// Begin begins a response with a final status and these headers. It reports whether Write has to be
	// called.
	Begin(status int, h http.Header) (reads bool)

	// Write reads a piece of the body.
	Write(piece []byte)

	// End ends the body. whole is whether all of it was written. cut is whether something of it is
	// missing: clients leave when a stream says that nothing follows, before it ends.
	End(whole bool) (cut bool)

	// Ended reports whether a stream said that nothing follows.
	Ended() bool

	// Lacks returns why the body tells nothing, such as its encoding; empty: it may.
	Lacks() string

	// Cost returns the final cost of the request, rounded up, at most [MaxCost]. It returns false if the
	// response does not tell it.
	Cost(told Response) (cost int64, ok bool)
}

// Hold is what a request is charged, or holds, before its response.
type Hold struct {
	Cost  int64 // at least 1
	Asked int64 // the part of it that the request or the configuration names; the rest is guessed
	Spare int64 // is held beside it, up to a tenth of the least capacity, for output that nothing bounds
}

// Response is how the response to a request ended.
type Response struct {
	Measured Measured // nil: it was not measured
	Written  int64    // bytes of the body

	Status int // 0: there was none
	Failed int // the status of the error that an error route answered with it; 0: none
	End    End // how
}

// End is how a response ended.
type End uint8

// The ends.
const (
	Never End = iota // the next handler never had the request
	Whole            // with all of it
	Cut              // early
	Left             // early, because the client left
	Gone             // the client left before there was a status
)
