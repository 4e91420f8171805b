package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/rules"
)

const (
	// streamLasts is how long a stream of live messages lasts. The page then asks for
	// another, so that one whose reader is gone unnoticed ends.
	streamLasts = 5 * time.Minute

	// streamStep is the interval of messages, aligned to the steps of the history.
	streamStep = 2 * time.Second

	// streamLag is how long after the end of a step its message is sent: when the history
	// has sampled the step.
	streamLag = 100 * time.Millisecond

	// streamPatience is how long a reader may take none of a message. It begins when the message is
	// made, which takes a busy machine with a thousand zones seconds.
	streamPatience = 10 * time.Second

	// exitPoll is the interval at which a stream looks whether the process exits. A server
	// that shuts down waits for its responses.
	exitPoll = 250 * time.Millisecond

	// maxStreams is how many streams an API has at most at the same time, however many pages
	// are open.
	maxStreams = 100
)

// stream is one reader of live messages.
type stream struct {
	api      *API
	in       instance
	readOnly bool
	open     string // the zone with its keys; empty: none
	since    int64  // the last step that the reader has
	have     string // the version of the zones that the reader has
	marks    int    // how many were sent
}

// serveLive sends live messages as server-sent events, one for each step of the history,
// until another configuration runs, when changed is closed. One request serves a page for minutes:
// Caddy logs each request to the admin endpoint. With the parameter once, it answers one message as
// JSON.
func (api *API) serveLive(w http.ResponseWriter, r *http.Request, in instance, changed <-chan struct{}, readOnly bool) error {
	if r.Method != http.MethodGet {
		return wrongMethod(w, r, "GET")
	}
	q := r.URL.Query()
	since, err := sinceIn(q)
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	s := stream{api: api, in: in, readOnly: readOnly, open: q.Get("open"), since: since, have: q.Get("have")}
	if q.Has("once") {
		return answerJSON(w, s.message())
	}
	defer api.streams.Add(-1)
	if api.streams.Add(1) > maxStreams {
		return apiError(http.StatusServiceUnavailable, fmt.Errorf("%d live pages are open here: close one of them", maxStreams))
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of proxies that would collect messages
	return s.run(w, r, changed)
}

// run sends messages until the configuration changes, the process exits, the reader is gone
// or the stream is over.
func (s *stream) run(w http.ResponseWriter, r *http.Request, changed <-chan struct{}) error {
	out := http.NewResponseController(w)
	// The deadlines of the server are for requests that end. A writer that has none is
	// not limited by it either.
	_ = out.SetReadDeadline(time.Time{})
	end := time.Now().Add(streamLasts)
	for time.Now().Before(end) {
		_ = out.SetWriteDeadline(time.Time{}) // a message may take longer to make
		if err := s.send(w, out); err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
		if !s.wait(r, changed) {
			return nil
		}
	}
	return nil
}

func (s *stream) send(w http.ResponseWriter, out *http.ResponseController) error {
	text, err := json.Marshal(s.message())
	if err != nil {
		return err
	}
	_ = out.SetWriteDeadline(time.Now().Add(streamPatience))
	if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
		return err
	}
	return out.Flush()
}

// wait waits for the end of the next step. It reports whether the stream goes on.
func (s *stream) wait(r *http.Request, changed <-chan struct{}) bool {
	step := streamStep.Microseconds()
	next := time.Now().Add(time.Duration(step-clock.Now()%step)*time.Microsecond + streamLag)
	for left := time.Until(next); left > 0; left = time.Until(next) {
		select {
		case <-r.Context().Done():
			return false
		case <-changed:
			return false
		case <-time.After(min(left, exitPoll)):
		}
		if caddy.Exiting() {
			return false
		}
	}
	return true
}

// message returns the next message.
func (s *stream) message() *cli.Live {
	now := s.api.zonesNow(s.in)
	m := &cli.Live{
		Overview: s.in.answerOverview(), ReadOnly: s.readOnly, Version: now.version, Blocked: now.blocked,
		History: history.Of(s.in.Process).Changes(s.since),
	}
	m.Marks, s.marks = history.MarksOf(s.in.Process).After(s.marks)
	if m.History.Last < s.since { // the clock was set back: what the reader has is no longer where it was
		m.History = history.Of(s.in.Process).Changes(0)
	}
	s.since = m.History.Last
	if s.have != now.version {
		m.Zones, s.have = now.zones, now.version
	}
	if s.open != "" {
		m.Open = s.in.openZone(s.open)
	}
	return m
}

// openZone returns a zone with its counts, keys and costs; nil: there is none of this name.
func (in instance) openZone(name string) *cli.OpenZone {
	zones := slices.DeleteFunc(in.Registry.Zones(), func(z *limiter.Zone) bool { return z.Name != name })
	if len(zones) == 0 {
		return nil
	}
	o := &cli.OpenZone{Zone: in.answerAll(zones)[0], Top: answerTop(zones[0])}
	if len(zones[0].GroupBy) > 0 {
		s := spendOf(zones[0], nil)
		o.Spend = &s
	}
	return o
}

// zonesNow is the zones at a step of the history.
type zonesNow struct {
	in      instance
	step    int64
	zones   []cli.Zone       // without their counts
	version string           // a hash of them
	blocked map[string]int64 // how many keys, by name; absent: none
}

// zonesNow returns the zones at this step. All streams send at the same instants, and build them
// once.
func (api *API) zonesNow(in instance) *zonesNow {
	api.mu.Lock()
	defer api.mu.Unlock()
	step := clock.Now() / streamStep.Microseconds()
	if n := api.now; n != nil && n.in == in && n.step == step {
		return n
	}
	now := &zonesNow{in: in, step: step, zones: []cli.Zone{}, blocked: make(map[string]int64)}
	for _, z := range in.Zones() {
		now.zones = append(now.zones, in.answerZone(z))
		if n := z.Blocked(clock.Now()); n > 0 {
			now.blocked[z.Name] = n
		}
	}
	// Caddy provisions servers in any order.
	slices.SortFunc(now.zones, func(a, b cli.Zone) int { return strings.Compare(a.Name, b.Name) })
	all, _ := json.Marshal(now.zones) // their options were JSON when they were loaded
	now.version, api.now = rules.Fingerprint(string(all)), now
	return now
}
