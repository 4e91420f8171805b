package test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// slowHandler is a handler of /slow that answers nobody who does not leave, and says who came.
type slowHandler chan bool

func (h slowHandler) handle(t *testing.T) (directive string) {
	return handle(t, "/slow", func(_ http.ResponseWriter, r *http.Request) error {
		h <- true
		<-r.Context().Done()
		return nil
	})
}

// leave sends a request, and leaves when the handler has it.
func (h slowHandler) leave(s *site) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	go func() {
		<-h
		cancel()
	}()
	if a, err := s.try(req{ctx: ctx, path: "/slow"}); err == nil {
		s.Fatalf("status %d, want none", a.status)
	}
}

// TestLinger has clients leave before the response, while what they started goes on. Their
// permits are kept for the zone's linger, over a reload too, and are released then.
func TestLinger(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		slow, zone := make(slowHandler), newName("lingers") // whose permits outlive the test
		config := func(linger, limit string) setup {
			return setup{app: b.app(), site: `
				rate_limit {
					zone ` + zone + ` {
						in_flight ` + limit + `
						linger ` + linger + `
					}
				}
				` + slow.handle(t) + `
				respond ok`}
		}
		s := serve(t, config("5s", "2"))
		begun := time.Now()
		slow.leave(s)
		slow.leave(s)
		until(t, "the end of both requests", func() bool { return len(s.log.lines(t, "handled request")) == 2 })
		denied := func() {
			t.Helper()
			a := s.send(req{})
			if time.Since(begun) > 5*time.Second {
				return // the machine stood still
			}
			if a.status != 429 || a.get("Retry-After") != "1" {
				t.Errorf("status %d, Retry-After %q, want 429 and 1", a.status, a.get("Retry-After"))
			}
		}
		denied()
		s.reload(config("5s", "2"))
		denied()
		s.want(req{ip: "10.0.0.2"}, 200)
		until(t, "the permits", func() bool { return s.send(req{}).status == 200 })
		if took := time.Since(begun); took < 5*time.Second {
			t.Errorf("a permit was released after %v, want 5s", took)
		}
		if b.redis != nil {
			until(t, "no permit in Redis", func() bool { return permitsIn(b.redis) == 0 })
		}
	})
}

// TestLingerAfterTheHeader has clients leave with the header of a response, while what they started
// goes on. Their permits are kept. A client that has the whole response has not left.
func TestLingerAfterTheHeader(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone ` + newName("lingers") + ` {
					in_flight 1
					linger 1h
				}
			}
			` + handle(t, "/slow/*", func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Path == "/slow/whole" {
				w.Header().Set("Content-Length", "2")
			}
			_, err := io.WriteString(w, "ok")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return err
		}) + `
			respond ok`})
		for ip, c := range map[string]struct {
			path   string
			status int
		}{
			"10.0.0.1": {"/slow/cut", 429},
			"10.0.0.2": {"/slow/whole", 200},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := s.client.Do(req{ctx: ctx, ip: ip, path: c.path}.http(s))
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			_ = resp.Body.Close()
			ended(t)
			if a := s.send(req{ip: ip}); a.status != c.status {
				t.Errorf("after %s: status %d, want %d", c.path, a.status, c.status)
			}
		}
	})
}

// TestHeldCostOfAWholeResponse has a client leave that has the whole response while the handler
// still runs: it costs what the response tells, not what was held.
func TestHeldCostOfAWholeResponse(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone ` + newName("held") + ` {
					cost 40
					settle {response.body.n}
					hold
					rule 50/1h
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			const text = `{"n":3}`
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, err := io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return err
		})})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := s.client.Do(req{ctx: ctx}.http(s))
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				t.Errorf("status %d", resp.StatusCode)
			}
			cancel() // of a body that was read, the connection would be kept
			_ = resp.Body.Close()
			ended(t)
		}
	})
}

// TestLingerBesideCountStatus has clients leave before the response of a zone that counts by
// status. They are charged at once, with a block, and their permits are kept for the zone's linger.
func TestLingerBesideCountStatus(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		slow := make(slowHandler)
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone ` + newName("lingers") + ` {
					count_status 401
					in_flight 10
					linger 1h
					rule 3/15m block 1h
				}
			}
			` + slow.handle(t) + `
			respond ok`})
		for range 3 {
			slow.leave(s)
		}
		until(t, "the block", func() bool {
			a := s.send(req{})
			if a.status != 429 {
				t.Fatalf("status %d, want 429", a.status)
			}
			after, _ := strconv.Atoi(a.get("Retry-After"))
			return after > 3000
		})
		if b.redis != nil && permitsIn(b.redis) == 0 {
			t.Error("no permit in Redis, want those of three requests")
		}
	})
}

// TestLingerAfterTheLastEvent has clients leave after the last event of a stream that the upstream has
// not ended: their place is free, whether the handler counts tokens or not.
func TestLingerAfterTheLastEvent(t *testing.T) {
	for _, zone := range []string{"", "zone tokens {\nkey all\ntokens\nrule 1000000/1h\n}\n"} {
		s := serve(t, setup{site: `
			rate_limit {
				zone ` + newName("lingers") + ` {
					key {header.X-Key}
					in_flight 1
					linger 1h
				}
				` + zone + `
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			if r.Method == http.MethodGet {
				return nil
			}
			w.Header().Set("Content-Type", eventStream)
			_, err := io.Copy(w, r.Body)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return err
		})})
		for stream, status := range map[string]int{
			"data: {\"a\":1}\n\n":                                                 429,
			"data: {\"a\":1}\n\ndata: [DONE]\n\n":                                 200,
			"event: message_stop\ndata: {}\n\n":                                   200,
			"data: {\"type\":\"response.failed\"}\n\n":                            200,
			"{\"response\":\"a\",\"done\":false}\n":                               429,
			"{\"response\":\"a\",\"done\":false}\n{\"done\":true}\n":              200,
			"data: {\"text\":\"[DONE]\"}\n\nevent: message_stop_not\ndata: 1\n\n": 429,
		} {
			ctx, leave := context.WithCancel(t.Context())
			q := req{method: "POST", ctx: ctx, body: stream, header: map[string]string{"X-Key": stream[:5] + strconv.Itoa(len(stream))}}
			resp, err := s.client.Do(q.http(s))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, len(stream))); err != nil {
				t.Error(err)
			}
			leave()
			_ = resp.Body.Close()
			ended(t)
			if a := s.send(req{header: q.header}); a.status != status {
				t.Errorf("with %q, after %q: status %d, want %d", zone, stream, a.status, status)
			}
		}
	}
}
