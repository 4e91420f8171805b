package instructions

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/dianalimiter/diana" // registers the handler
	"github.com/dianalimiter/diana/internal/testkit/benchtest"
)

// row is a request whose instructions are counted.
type row struct {
	name, headers string
	zone          string // its rules and other options, in JSON
	limit, body   string // of the requests
	post          bool   // whether their method is POST
	denied, near  bool   // whether they are denied, or near the limit
	redis         bool   // whether they are counted in Redis
}

const (
	gcra = `{"limit":1000000,"window":"10h","algorithm":{"name":"gcra"}}`                                                                                // what refills meanwhile does not depend on how long it takes
	more = `{"limit":1000000,"window":"10h","algorithm":{"name":"sliding_window"}},{"limit":1000000,"window":"10h","algorithm":{"name":"fixed_window"}}` // of which none ends meanwhile
	slow = `{"limit":10000,"window":"10h","algorithm":{"name":"gcra"}}`                                                                                  // whose keys Redis still has when their client comes again, on any machine
	few  = `{"limit":1,"window":"10h","algorithm":{"name":"gcra"}}`
	many = `{"limit":20000,"window":"10h","algorithm":{"name":"gcra"}}`
)

// The first rows are ordinary requests. Each of the others is the first with a feature more.
var rows = []row{
	{name: "allowed", zone: rules(gcra)},
	{name: "allowed with headers", headers: "draft", zone: rules(gcra)},
	{name: "allowed by three rules", zone: rules(gcra + "," + more)},
	{name: "denied", zone: rules(few), denied: true},
	{name: "allowed through Redis", zone: rules(slow), redis: true},
	{name: "block", zone: rules(with(`"block":"1h"`))},
	{name: "in_flight", zone: rules(gcra) + `,"in_flight":1000`},
	{name: "in_flight adaptive", zone: rules(gcra) + `,"in_flight_adaptive":{}`},
	{name: "in_flight adaptive with headers", headers: "draft", zone: rules(gcra) + `,"in_flight_adaptive":{}`},
	{name: "count_status", zone: rules(gcra) + `,"count_status":[401]`},
	{name: "overrides", zone: rules(gcra) + `,"overrides":[{"key":["one"],"unlimited":true},{"key":["two"],"unlimited":true}]`},
	{name: "limit of the request", zone: rules(with(`"limit_from":"{header.X-Limit}"`)), limit: "500000"},
	{name: "field of the body", zone: rules(gcra), body: `{"name":"A. Reader","phone":"+49 30 1234567","plan":1}`},
	{name: "prevent_duplicates", zone: rules(gcra) + `,"prevent_duplicates":{"window":"1us"}`, post: true},
	{name: "near the limit", zone: rules(many), near: true},
	{name: "placeholders", zone: rules(gcra) + `,"respond":{"body":"{http.rate_limit.exceeded.rule}"}`},
}

// redisVar has the address of a Redis for the benchmark.
const redisVar = "DIANA_INSTRUCTIONS_REDIS"

func rules(list string) string { return `"rules":[` + list + `]` }

// with returns the rule of the first row with another option.
func with(option string) string { return strings.Replace(gcra, "{", "{"+option+",", 1) }

// handler provisions the handler of a row.
func (c *row) handler(b *testing.B) caddyhttp.MiddlewareHandler {
	key := `["{header.X-Key}"]`
	if c.body != "" {
		key = `["{body.phone}"],"key_missing":"client_ip"`
	}
	config := `{"name":"z","key":` + key + `,` + c.zone + `}`
	headers := c.headers
	if headers == "" {
		headers = "off"
	}
	var apps map[string]string
	if c.redis {
		apps = map[string]string{"rate_limit": fmt.Sprintf(`{"stores":[{"addresses":[%q],"timeout":"1m"}]}`, os.Getenv(redisVar))}
	}
	return benchtest.Handler(b, "rate_limit", fmt.Sprintf(`{"headers":%q,"zones":[%s]}`, headers, config), apps)
}

// sender sends the requests of a row.
type sender struct {
	*row
	h    caddyhttp.MiddlewareHandler
	e    *benchtest.Exchange
	keys []string
	sent int
	body *strings.Reader
}

// batch returns how many requests are counted together: of those that wait for Redis few, so that
// some batches end between two of the store's heartbeats on a busy machine, too.
func (c *row) batch() int {
	if c.redis {
		return 10
	}
	return 100
}

// clients is how many clients send the requests.
const clients = 1000

func newSender(b *testing.B, c *row) *sender {
	s := &sender{row: c, h: c.handler(b), e: benchtest.NewExchange(b), keys: benchtest.Keys(clients), body: strings.NewReader("")}
	r := s.e.Request()
	if c.limit != "" {
		r.Header.Set("X-Limit", c.limit)
	}
	if c.post || c.body != "" {
		r.Method = http.MethodPost
	}
	if c.body != "" {
		r.ContentLength = int64(len(c.body))
		r.Header.Set("Content-Type", "application/json")
	}
	return s
}

// send sends a request. It fails if the request was not decided as the row wants it.
func (s *sender) send(key string) error {
	if s.row.body != "" {
		s.body.Reset(s.row.body)
		s.e.Request().Body = io.NopCloser(s.body)
	}
	switch err := s.e.Do(s.h, key); {
	case s.denied && err == nil:
		return fmt.Errorf("the request of %s passed: want it denied", key)
	case !s.denied && err != nil:
		return fmt.Errorf("the request of %s: %w", key, err)
	}
	return nil
}

// warm has all clients known, and the limit used up, or nearly. It takes many requests, because the
// runtime caches what a type switch found at one of 1024 misses.
func (s *sender) warm(b *testing.B) {
	requests := 10 * clients
	switch {
	case s.denied:
		s.keys = s.keys[:1]
		_ = s.e.Do(s.h, s.keys[0])
	case s.near:
		s.keys, requests = s.keys[:1], 16_500
	}
	for i := range requests {
		if err := s.send(s.keys[i%len(s.keys)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest sends the requests of the rows.
func BenchmarkRequest(b *testing.B) {
	for i := range rows {
		if rows[i].redis && os.Getenv(redisVar) == "" {
			continue
		}
		b.Run(rows[i].name, func(b *testing.B) {
			if b.N == 1 {
				return // a benchmark first runs once
			}
			s := newSender(b, &rows[i])
			s.warm(b)
			var err error
			counting(func() {
				for range b.N {
					err = errors.Join(err, s.send(s.keys[0])) // it writes the log line of the second, if one is due
					written(func() { err = errors.Join(err, s.sendBatch()) })
				}
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// sendBatch sends the requests that are counted together.
func (s *sender) sendBatch() error {
	for range s.batch() {
		if err := s.send(s.keys[s.sent%len(s.keys)]); err != nil {
			return err
		}
		s.sent++
	}
	return nil
}
