package test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// quotaOf is an answer of rate_limit_quota.
type quotaOf struct {
	Zones []quotaZone `json:"zones"`
}

type quotaZone struct {
	Zone, Unit string
	Blocked    int
	Rules      []quotaRule
}

type quotaRule struct {
	Rule                                   string
	Limit, Window, Used, Held, Left, Reset int
}

// quota asks for what is left for a request.
func (s *site) quota(q req) (answer quotaOf) {
	s.Helper()
	a := s.want(q, 200)
	if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
		s.Fatalf("%v: %s", err, a.body)
	}
	if a.get("Content-Type") != "application/json" || a.get("Cache-Control") != "no-store" {
		s.Errorf("headers %v", a.header)
	}
	return answer
}

// TestQuota asks for what is left before, between and after requests. Nothing is charged, and only
// zones are told that limit the client.
func TestQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit_quota /quota
			rate_limit_quota /named all api
			rate_limit {
				zone api {
					match path /api
					key {header.X-Key}
					key_missing skip
					rule 3/1h fixed_window block 2h
					rule 10/1d gcra burst 20 name day
					override vip unlimited
					override big {
						rule 100/1h
					}
				}
				zone all {
					key all
					rule 50/1h
				}
				zone quiet {
					key {header.X-Key}
					key_missing skip
					rule 1/1h
					shadow
				}
				zone office {
					exempt header X-Key office
					key {client_ip}
					cost 2
					rule 1000/1h
				}
				zone budget {
					key {header.X-Token}
					key_missing deny
					match path /chat
					tokens
					rule 1000/1h
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			answering("application/json", usages["openai"][0].body)(w, r)
			return nil
		})})
		key := func(path, key string) req { return req{path: path, header: map[string]string{"X-Key": key}} }
		office := func(used int) quotaZone {
			return quotaZone{"office", "units", 0, []quotaRule{{"1", 1000, 3600, used, 0, 1000 - used, 0}}}
		}
		want := func(q req, zones ...quotaZone) {
			t.Helper()
			got := s.quota(q)
			for i := range got.Zones {
				for j := range got.Zones[i].Rules {
					r := &got.Zones[i].Rules[j]
					if (r.Reset > 0) != (r.Used > 0) || r.Reset > 24*3600 {
						t.Errorf("%s: reset after %d s with %d used", got.Zones[i].Zone, r.Reset, r.Used)
					}
					r.Reset = 0
				}
				if n := got.Zones[i].Blocked; n > 7100 && n <= 7200 {
					got.Zones[i].Blocked = 7200
				}
			}
			if !reflect.DeepEqual(got.Zones, zones) {
				t.Errorf("%s: %+v, want %+v", q.header["X-Key"], got.Zones, zones)
			}
		}
		api := func(blocked, used int) quotaZone {
			return quotaZone{"api", "requests", blocked, []quotaRule{{"1", 3, 3600, used, 0, 3 - used, 0}, {"day", 10, 86400, used, 0, 20 - used, 0}}}
		}
		for range 5 {
			want(key("/quota", "a"), api(0, 0), office(0))
		}
		s.want(key("/api", "a"), 200, 200)
		want(key("/quota", "a"), api(0, 2), office(4))
		want(key("/quota", "b"), api(0, 0), office(4))
		want(key("/named", "b"), quotaZone{"all", "requests", 0, []quotaRule{{"1", 50, 3600, 2, 0, 48, 0}}}, api(0, 0))
		want(key("/quota", "vip"), office(4))
		want(key("/quota", "big"), quotaZone{"api", "requests", 0, []quotaRule{{"1", 100, 3600, 0, 0, 100, 0}}}, office(4))
		want(key("/quota", "office"), api(0, 0))
		want(req{path: "/quota"}, office(4))
		s.want(key("/api", "a"), 200, 429)
		blocked := quotaZone{"api", "requests", 7200, []quotaRule{{"1", 3, 3600, 3, 0, 0, 0}, {"day", 10, 86400, 3, 0, 0, 0}}}
		want(key("/quota", "a"), blocked, office(6))

		s.want(req{method: "POST", path: "/chat", body: "{}", header: map[string]string{"X-Token": "x"}}, 200)
		token := req{path: "/quota", header: map[string]string{"X-Token": "x"}}
		until(t, "the charge", func() bool { return s.quota(token).Zones[0].Rules[0].Used == 15 })
		want(token, quotaZone{"budget", "tokens", 0, []quotaRule{{"1", 1000, 3600, 15, 0, 985, 0}}}, office(8))

		if a := s.want(req{method: "POST", path: "/quota"}, 405); a.get("Allow") != "GET, HEAD" {
			t.Errorf("Allow %q", a.get("Allow"))
		}
	})
}

// TestQuotaIsNoBadCost asks in a zone whose cost and limit requests have to bring. A question
// without them is not counted as one that lacks them.
func TestQuotaIsNoBadCost(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit_quota /quota
		rate_limit {
			zone brought {
				key {header.X-Key}
				key_missing skip
				cost {header.X-Cost}
				rule {header.X-Limit}/1h else 50
			}
		}
		respond ok`})
	counts := func() [2]float64 {
		return [2]float64{s.metric("bad_cost_total", "zone", "brought"), s.metric("bad_limit_total", "zone", "brought")}
	}
	begun, q := counts(), req{path: "/quota", header: map[string]string{"X-Key": "a"}}
	if zones := s.quota(q).Zones; len(zones) != 1 || zones[0].Rules[0].Left != 50 {
		t.Errorf("%+v", zones)
	}
	if n := counts(); n != begun {
		t.Errorf("after a question: %v bad costs and limits, want %v", n, begun)
	}
	q.path = "/"
	s.want(q, 200)
	if n := counts(); n != [2]float64{begun[0] + 1, begun[1] + 1} {
		t.Errorf("after a request: %v bad costs and limits, want one more than %v", n, begun)
	}
}

// TestQuotaUnknownZone checks that a configuration that asks for a zone that it does not have is
// refused.
func TestQuotaUnknownZone(t *testing.T) {
	s := newSite(t)
	err := s.load(setup{site: "rate_limit_quota /quota apu\nrate_limit {\nzone api {\nrule 1/1h\n}\nzone b {\nrule 1/1h\n}\n}"})
	if err == nil || !strings.Contains(err.Error(), "rate_limit_quota: zone apu is not defined: want the name of a zone") {
		t.Error(err)
	}
}

// TestQuotaTellsWhatIsHeld asks while a request is answered, and afterwards: what it holds is
// told apart from what is used, to clients, by the admin API and by the command line.
func TestQuotaTellsWhatIsHeld(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		enter, goOn := make(chan bool), make(chan bool)
		s := serve(t, setup{app: b.app(), site: `
			rate_limit_quota /quota
			rate_limit {
				zone quota_held {
					match method POST
					key {header.X-Token}
					tokens {
						reserve 7
					}
					rule 1000/month calendar
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			if r.Method == http.MethodPost {
				enter <- true
				<-goOn
				answering("application/json", `{"usage":{"input_tokens":3,"output_tokens":2}}`)(w, r)
			}
			return nil
		})})
		ask := req{path: "/quota", header: map[string]string{"X-Token": "x"}}
		numbers := func() (n [3]int) {
			r := s.quota(ask).Zones[0].Rules[0]
			k := s.key("GET", "quota_held", "x")
			if e := k.Rules[0]; k.Unit != "tokens" || int(e.Used) != r.Used || int(e.Held) != r.Held || int(e.Remaining) != r.Left {
				t.Errorf("the admin API says %+v in %s, the client is told %+v", e, k.Unit, r)
			}
			return [3]int{r.Used, r.Held, r.Left}
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			s.want(req{method: "POST", body: "{}", header: map[string]string{"X-Token": "x"}}, 200)
		}()
		<-enter
		if n := numbers(); n != [3]int{0, 7, 993} {
			t.Errorf("while a request holds 7: used, held and left %v", n)
		}
		goOn <- true
		<-done
		until(t, "the charge", func() bool { return numbers() == [3]int{5, 0, 995} })
	})
}

// TestQuotaOfShadowElsewhere asks for a zone that one handler enforces and another has in shadow.
func TestQuotaOfShadowElsewhere(t *testing.T) {
	zone := "rate_limit {\nzone z {\nrule 5/1h\nMORE\n}\n}\nrespond ok\n"
	s := serve(t, setup{site: "rate_limit_quota /quota\nhandle /a {\n" + strings.ReplaceAll(zone, "MORE", "shadow") + "}\nhandle /b {\n" + strings.ReplaceAll(zone, "MORE", "") + "}"})
	s.want(req{path: "/b"}, 200)
	if got := s.quota(req{path: "/quota"}); len(got.Zones) != 1 || got.Zones[0].Rules[0].Used != 1 {
		t.Errorf("%+v, want the zone with 1 used", got)
	}
}

// TestQuotaOfLimitZero asks for keys that may never pass: by an override, by an exception, or because
// the request says so. They are told the rule, unlike those that nothing limits.
func TestQuotaOfLimitZero(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, setup{app: b.app(), site: `rate_limit_quota /quota
			rate_limit {
				zone z {
					key {header.X-Key}
					rule {header.X-Limit}/1h sliding_window else 5
					override bad {
						rule 9/1m
						rule 0/1d name never
					}
					override vip unlimited
				}
			}`})
		s.apply(zoneDocument(`{"exceptions": [{"key": ["worse"], "rules": [{"limit": 0, "window": "month", "algorithm": {"name": "calendar"}}]}]}`))
		for _, c := range []struct {
			key, limit string
			want       []quotaRule
		}{
			{"bad", "", []quotaRule{{Rule: "never", Window: 24 * 3600}}},
			{"worse", "", []quotaRule{{Rule: "1"}}},
			{"a", "0", []quotaRule{{Rule: "1", Window: 3600}}},
			{"a", "", []quotaRule{{Rule: "1", Limit: 5, Window: 3600, Left: 5}}},
		} {
			q := req{path: "/quota", header: map[string]string{"X-Key": c.key, "X-Limit": c.limit}}
			if got := s.quota(q); !reflect.DeepEqual(got.Zones, []quotaZone{{"z", "requests", 0, c.want}}) {
				t.Errorf("%s with limit %q: %+v, want %+v", c.key, c.limit, got.Zones, c.want)
			}
		}
		if got := s.quota(req{path: "/quota", header: map[string]string{"X-Key": "vip"}}); len(got.Zones) != 0 {
			t.Errorf("unlimited: %+v, want nothing", got.Zones)
		}
		if k := s.key(http.MethodGet, "z", "bad"); k.Decision != "denied" || len(k.Rules) != 1 || k.Rules[0].Name != "never" || k.Rules[0].Admits {
			t.Errorf("%+v, want the rule with limit 0", k)
		}
	})
}
