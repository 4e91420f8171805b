package test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAdaptiveMistakesInJSON checks the errors of an in_flight adaptive that is written in JSON, where no parser of the
// Caddyfile came before.
func TestAdaptiveMistakesInJSON(t *testing.T) {
	for zone, want := range map[string]string{
		`"in_flight": 3, "in_flight_adaptive": {}`:                                      "in_flight 3 and in_flight adaptive in one zone: want one of them, or two zones",
		`"in_flight_adaptive": {"min": -1}`:                                             "min -1: want 1 to 1000000000",
		`"in_flight_adaptive": {"max": -1}`:                                             "max -1: want 1 to 1000000000",
		`"in_flight_adaptive": {"max": 1000000001}`:                                     "max 1000000001: want 1 to 1000000000",
		`"in_flight_adaptive": {"min": 10, "max": 9}`:                                   "max 9 is below min 10: want at least as much",
		`"in_flight_adaptive": {"min": 1001}`:                                           "min 1001 is above max, which is 1000 by default: want max too",
		`"in_flight_adaptive": {"classes": ["a"]}`:                                      "classes without priority: want the placeholder whose values they are",
		`"in_flight_adaptive": {"priority": "{vars.t}", "classes": ["a", ""]}`:          "an empty class: want a value of priority",
		`"in_flight_adaptive": {"priority": "{vars.t}", "classes": ["a", "b", "a"]}`:    "class a twice: want each once",
		`"in_flight_adaptive": {"priority": "{vars.t}", "classes": [` + nine + `]}`:     "9 classes: want at most 8",
		`"in_flight_adaptive": {"priority": "c", "classes": ["a", "b"]}`:                "priority c: want a placeholder, or one of its classes: a, b",
		`"in_flight_adaptive": {"priority": "8"}`:                                       "priority 8: want a placeholder, or a number from 0 to 7",
		`"in_flight_adaptive": {"priority": "{http.request.body.t}", "classes": ["a"]}`: "want a placeholder of the head of the request",
		`"in_flight_adaptive": {"max": 1, "priority": "7"}`:                             "",
	} {
		err := validate(t, "", handlerOf(`{"name": "z", `+zone+`}`))
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", zone, err, want)
		}
	}
}

const nine = `"a", "b", "c", "d", "e", "f", "g", "h", "i"`

// TestAdaptiveWarnings checks the warnings about an in_flight adaptive that cannot do what it is for.
func TestAdaptiveWarnings(t *testing.T) {
	const (
		shadow = "in_flight adaptive in a zone in shadow does nothing: requests do not keep to a limit, so that none can be found"
		wait   = "in_flight adaptive without max_wait: no request waits, and priority and fairness to keys do nothing"
		chosen = "clients choose their priority: it is what they send"
	)
	zone := func(priority, more string) string {
		return "rate_limit {\nzone z {\nin_flight adaptive {\n" + priority + "\n}\n" + more + "\n}\n}\nrespond ok"
	}
	for site, want := range map[string][3]int{
		zone("", "max_wait 1s"):         {0, 0, 0},
		zone("", ""):                    {0, 1, 0},
		zone("", "max_wait 1s\nshadow"): {1, 0, 0},
		zone("priority {header.X-Tier} paid free", "max_wait 1s"):                                                   {0, 0, 1},
		zone("priority {query.tier}", "max_wait 1s"):                                                                {0, 0, 1},
		zone("priority {http.auth.user.tier} paid free", "max_wait 1s"):                                             {0, 0, 0},
		"route {\nrequest_header X-Tier free\n" + zone("priority {header.X-Tier} paid free", "max_wait 1s") + "\n}": {0, 0, 0},
	} {
		s := serve(t, setup{site: site})
		for i, msg := range []string{shadow, wait, chosen} {
			lines := s.log.lines(t, msg)
			if len(lines) != want[i] {
				t.Errorf("%s: %d lines %q, want %d", site, len(lines), msg, want[i])
			}
			if len(lines) > 0 && (lines[0]["level"] != "warn" || lines[0][adviceField] == "" || lines[0]["zone"] != "z") {
				t.Errorf("%s: %v", site, lines[0])
			}
		}
	}
}

// TestOverloadGRPC denies a call for want of a place.
func TestOverloadGRPC(t *testing.T) {
	g := newGate()
	s := grpcSite(t, "", overload(1, "")+handle(t, "*", g.ServeHTTP))
	first := s.open(g, req{})
	header, trailer, err := s.call()
	if got := strings.Join(trailer.Get("retry-after"), " "); status.Code(err) != codes.Unavailable || got != "1" {
		t.Errorf("%v, Retry-After %q, want Unavailable and 1; headers %v, trailers %v", err, got, header, trailer)
	}
	g.goOn <- true
	<-first
	s.wantFree()
}
