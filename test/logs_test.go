package test

import (
	"reflect"
	"testing"
	"time"
)

func TestLogLine(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, logKey := range []bool{false, true} {
			option := ""
			if logKey {
				option = "log_key"
			}
			s := serve(t, setup{app: b.app(), site: `
				rate_limit {
					zone z {
						key {header.A} {client_ip}
						rule 1/1h name hourly
					}
					` + option + `
				}
				respond ok`})
			q := req{method: "PUT", ip: "10.0.0.1", host: "h.example", header: map[string]string{"A": "account-" + option}}
			s.want(q, 200, 429)
			lines := s.log.lines(t, "rate limit exceeded")
			if len(lines) != 1 {
				t.Fatalf("%d lines, want 1", len(lines))
			}
			line := lines[0]
			wait, _ := line["wait"].(float64)
			if wait < 3590 || wait > 3600 {
				t.Errorf("wait %v", line["wait"])
			}
			want := map[string]any{
				"logger": "http.handlers.rate_limit", "level": "info", "zone": "z", "rule": "hourly", "remote_ip": "127.0.0.1",
				"client_ip": "10.0.0.1", "method": "PUT", "host": "h.example", "key": nil, "suppressed": nil,
			}
			if logKey {
				want["key"] = "account-log_key 10.0.0.1"
			}
			for k, v := range want {
				if line[k] != v {
					t.Errorf("%s: %v, want %v", k, line[k], v)
				}
			}
		}
	})
}

// TestLogLinesAreCapped checks that denials log at most a hundred lines a second
// for each zone, and then one line with the number of suppressed ones.
func TestLogLinesAreCapped(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone loud {
				rule 1/1h
			}
		}
		respond ok`})
	s.want(req{}, 200)
	begun := time.Now()
	const n = 600
	parallel(10, func(int) {
		for range n / 10 {
			if _, err := s.try(req{}); err != nil {
				t.Error(err)
			}
		}
	})
	seconds := int(time.Since(begun)/time.Second) + 2 // an upper bound, whatever the fraction of a second at the start
	count := func() (lines, suppressed int) {
		for _, line := range s.log.lines(t, "rate limit exceeded") {
			lines++
			if v, ok := line["suppressed"].(float64); ok {
				suppressed += int(v)
			}
		}
		return lines, suppressed
	}
	lines, _ := count()
	if lines < 100 || lines > 100*seconds {
		t.Errorf("%d lines in less than %d s, want at most 100 per second", lines, seconds)
	}
	denials := n
	until(t, "all denials to be logged", func() bool {
		s.want(req{}, 429)
		denials++
		lines, suppressed := count()
		return lines+suppressed == denials
	})
}

func TestDenialEvent(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		seen, subscribe := listen(t, "rate_limit_exceeded")
		s := serve(t, setup{app: b.app(), global: subscribe, site: `
			rate_limit {
				zone z {
					rule 1/1h name hourly
				}
				log_key
			}
			respond ok`})
		s.want(req{ip: "10.0.0.1", host: "h.example"}, 200)
		if n := len(seen.named("rate_limit_exceeded")); n != 0 {
			t.Errorf("%d events of an admitted request", n)
		}
		s.want(req{ip: "10.0.0.1", host: "h.example"}, 429, 429)
		events := seen.wait(t, "rate_limit_exceeded", 2)
		if id := string(events[0].Origin().CaddyModule().ID); id != "rate_limit" {
			t.Errorf("origin %s", id)
		}
		for k, want := range map[string]any{
			"zone": "z", "rule": "hourly", "remote_ip": "127.0.0.1", "client_ip": "10.0.0.1",
			"method": "GET", "host": "h.example", "key": "10.0.0.1",
		} {
			if got := events[0].Data[k]; got != want {
				t.Errorf("%s: %v, want %v", k, got, want)
			}
		}
		if wait, _ := events[0].Data["wait"].(time.Duration); wait < 59*time.Minute || wait > time.Hour {
			t.Errorf("wait %v", events[0].Data["wait"])
		}
	})
}

// TestDenialInAccessLog checks that the access log line of a request has cause, rule, zone
// and decision.
func TestDenialInAccessLog(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					rule 5/1h
					rule 1/1h name hourly
					respond 403
				}
			}
			respond ok`})
		s.want(req{}, 200, 403)
		lines := s.log.access(t, 2)
		if lines[0]["rate_limit"] != nil {
			t.Errorf("an admitted request has %v", lines[0]["rate_limit"])
		}
		d, _ := lines[1]["rate_limit"].(map[string]any)
		if len(d) != 4 || d["cause"] != "rule" || d["zone"] != "z" || d["rule"] != "hourly" || d["decision"] != "denied" {
			t.Errorf("access log has %v", lines[1]["rate_limit"])
		}
	})
}

// TestMostNotableInAccessLog has several handlers decide about a request: its access log line has the most notable decision,
// whichever came last.
func TestMostNotableInAccessLog(t *testing.T) {
	const denies, delays = "zone denies {\nrule 1/1h name hourly\n", "zone delays {\nrule 1/4s leaky_bucket burst 5\n"
	const handler, shadow, end = "rate_limit {\n", "shadow\n", "}\n}\n"
	for name, c := range map[string]struct {
		site     string
		decision map[string]any
	}{
		"a shadow in the error route": {
			handler + denies + end + "handle_errors {\n" + handler + "zone errors {\nrule 1/1h\n" + shadow + end + "respond sorry\n}\nrespond ok",
			map[string]any{"zone": "denies", "rule": "hourly", "decision": "denied", "cause": "rule"},
		},
		"a shadow after a delay": {
			"route {\n" + handler + delays + end + handler + denies + shadow + end + "respond ok\n}",
			map[string]any{"zone": "delays", "rule": "", "decision": "delayed"},
		},
		"a shadow that would deny before one that would delay": {
			"route {\n" + handler + denies + shadow + end + handler + delays + shadow + end + "respond ok\n}",
			map[string]any{"zone": "denies", "rule": "hourly", "decision": "shadow_denied", "cause": "rule"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{site: c.site})
			for range 2 {
				s.send(req{})
			}
			if got := s.log.access(t, 2)[1]["rate_limit"]; !reflect.DeepEqual(got, c.decision) {
				t.Errorf("access log has %v, want %v", got, c.decision)
			}
		})
	}
}

// TestEventsAreCapped checks that denials, real and in shadow, emit at most a hundred events
// a second for each zone and kind, and then one with the number of suppressed ones: event
// handlers may start processes.
func TestEventsAreCapped(t *testing.T) {
	for _, c := range []struct {
		event, shadow string
		status        int
	}{
		{"rate_limit_exceeded", "", 429},
		{"rate_limit_shadow_exceeded", "shadow", 200},
	} {
		t.Run(c.event, func(t *testing.T) {
			seen, subscribe := listen(t, c.event)
			s := serve(t, setup{global: subscribe, site: `
				rate_limit {
					zone loud {
						rule 1/1h
						` + c.shadow + `
					}
				}
				respond ok`})
			s.want(req{}, 200)
			begun := time.Now()
			const n = 600
			parallel(10, func(int) {
				for range n / 10 {
					if _, err := s.try(req{}); err != nil {
						t.Error(err)
					}
				}
			})
			count := func() (events, suppressed int) {
				for _, e := range seen.named(c.event) {
					events++
					v, _ := e.Data["suppressed"].(uint64)
					suppressed += int(v)
				}
				return events, suppressed
			}
			denials := n
			until(t, "all denials to be in events", func() bool {
				s.want(req{}, c.status)
				denials++
				events, suppressed := count()
				if events+suppressed < n {
					return false
				}
				if seconds := int(time.Since(begun)/time.Second) + 2; events > 100*seconds {
					t.Fatalf("%d events in less than %d s, want at most 100 per second", events, seconds)
				}
				return events+suppressed <= denials
			})
		})
	}
}
