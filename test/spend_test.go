package test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// spending is a site that adds up by team and model what requests cost: two for a token of the input,
// four for one of the output. 1,000 are held. A handler after it changes the team.
type spending struct {
	*site
	entered sync.Map // by the id of a request that its client leaves: closed when the upstream has it
	setup   setup
}

func spends(t *testing.T, app string) *spending {
	s := new(spending)
	s.setup = setup{app: app, site: `
		map {header.X-Team} {team} {
			~^(team-.)$ ${1}
			default unknown
		}
		rate_limit {
			zone money {
				key everyone
				tokens {
					input 2
					output 4
					reserve 1000
				}
				group_by {team} {body.model}
				unit microdollars
				rule 1000000000/1h
			}
		}
		request_header X-Team later
		` + handle(t, "*", s.answer)}
	s.site = serve(t, s.setup)
	return s
}

// answer answers with the usage and in the way that the query asks for.
func (s *spending) answer(w http.ResponseWriter, r *http.Request) error {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	q := r.URL.Query()
	usage := fmt.Sprintf(`{"usage": {"prompt_tokens": %s, "completion_tokens": %s}}`, q.Get("in"), q.Get("out"))
	switch q.Get("way") {
	case "error":
		w.WriteHeader(http.StatusBadGateway)
		return nil
	case "leaves": // before there is a status
		entered, _ := s.entered.Load(q.Get("id"))
		close(entered.(chan struct{}))
		<-r.Context().Done()
		return r.Context().Err()
	case "stream", "leaves a stream":
		w.Header().Set("Content-Type", eventStream)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", usage)
		_ = http.NewResponseController(w).Flush()
		if q.Get("way") == "stream" {
			_, err := io.WriteString(w, "data: [DONE]\n\n")
			return err
		}
		<-r.Context().Done()
		return r.Context().Err()
	}
	w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(w, usage)
	return err
}

// asked is a random request, with its group and what it must cost.
type asked struct {
	req
	way, id, group string
	cost           uint64
}

var ways = []string{"plain", "plain", "stream", "get", "error", "leaves", "leaves a stream"}

func askedAtRandom(random *rand.Rand, id string) (a asked) {
	team, model := fmt.Sprint("team-", random.IntN(5)), []string{"small", "large", "openai/large", ""}[random.IntN(4)]
	in, out := random.IntN(1000), 1+random.IntN(1000)
	a = asked{way: ways[random.IntN(len(ways))], id: id, group: team + " / " + cmp.Or(model, "-"), cost: uint64(2*in + 4*out)}
	a.req = req{
		method: "POST", path: "/?" + url.Values{"way": {a.way}, "id": {id}, "in": {strconv.Itoa(in)}, "out": {strconv.Itoa(out)}}.Encode(),
		body: fmt.Sprintf(`{"model": %q}`, model), header: map[string]string{"X-Team": team, "Content-Type": "application/json"},
	}
	switch a.way {
	case "get":
		a.method, a.cost = "GET", 0
	case "error":
		a.cost = 0
	case "leaves":
		a.cost = 1000
	case "leaves a stream":
		a.cost = max(a.cost, 1000)
	}
	return a
}

// send sends a request, and leaves it when the upstream has done what its way says.
func (s *spending) send(a asked) error {
	ctx, leave := context.WithCancel(s.Context())
	defer leave()
	a.ctx = ctx
	if a.way == "leaves" {
		entered := make(chan struct{})
		s.entered.Store(a.id, entered)
		go func() {
			<-entered
			leave()
		}()
		if _, err := s.try(a.req); ctx.Err() == nil {
			return fmt.Errorf("a response that was not to come: %w", err)
		}
		return nil
	}
	resp, err := s.client.Do(a.http(s.site))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if a.way == "leaves a stream" {
		_, err = bufio.NewReader(resp.Body).ReadString('}')
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// spend returns an answer about costs by group, with the groups as a map.
func (s *site) spend(path string) (answer cli.Spend, groups map[string]uint64) {
	s.Helper()
	if status, text := s.admin("GET", path, "", &answer); status != 200 {
		s.Fatalf("%s: %d %s", path, status, text)
	}
	groups = make(map[string]uint64)
	for _, g := range answer.Groups {
		groups[g.Group] += g.Cost
	}
	return answer, groups
}

// groupSeries returns the costs by group in the metrics.
func (s *site) groupSeries(zone string) (all map[string]uint64) {
	s.Helper()
	ctx := caddy.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		s.Fatal(err)
	}
	all = make(map[string]uint64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == metrics.Namespace+"_group_cost_total" && l[1].GetValue() == zone {
				if m.GetCounter().GetCreatedTimestamp() == nil {
					s.Errorf("group %s has no time of its creation", l[0].GetValue())
				}
				all[l[0].GetValue()] = uint64(m.GetCounter().GetValue())
			}
		}
	}
	return all
}

// TestSpend sends random requests, streams and such that their clients leave, over a reload, and compares
// what metrics, the admin API, the command and the access log say that each team and model cost.
func TestSpend(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := spends(t, b.app())
		want, all := make(map[string]uint64), uint64(0)
		var mu sync.Mutex
		const clients, each = 6, 60
		parallel(clients, func(client int) {
			random := rand.New(rand.NewPCG(1, uint64(client)))
			for n := range each {
				a := askedAtRandom(random, fmt.Sprint(client, "-", n))
				if err := s.send(a); err != nil {
					t.Errorf("%s of %s: %v", a.way, a.group, err)
				}
				mu.Lock()
				if all += a.cost; a.cost > 0 {
					want[a.group] += a.cost
				}
				mu.Unlock()
			}
		})
		ended(t)
		s.reload(setup{app: s.setup.app, site: s.setup.site + "\nheader X-Reloaded yes"})
		answer, groups := s.spend("zones/money/spend")
		if !maps.Equal(groups, want) || answer.All != all || answer.Unit != "microdollars" || len(answer.By) != 2 {
			t.Errorf("%+v\nwant %d of %v", answer, all, want)
		}
		if !slices.IsSortedFunc(answer.Groups, func(a, b metrics.GroupCost) int { return cmp.Compare(b.Cost, a.Cost) }) {
			t.Errorf("groups are not sorted: %v", answer.Groups)
		}
		if series := s.groupSeries("money"); !maps.Equal(series, want) || s.metric("settled_cost_total", "zone", "money") < float64(all) {
			t.Errorf("metrics: %v, want %v", series, want)
		}
		for _, args := range [][]string{{"spend"}, {"spend", "money"}} {
			out, err := s.shell("", args...)
			words := strings.Join(strings.Fields(out), " ")
			if err != nil || !strings.Contains(words, fmt.Sprintf(" %s %d ", answer.Groups[0].Group, answer.Groups[0].Cost)) || !strings.HasSuffix(words, fmt.Sprint(" all ", all)) {
				t.Errorf("%q: %v\n%s", args, err, out)
			}
		}
		if open := s.live("once&open=money").Open; open.Spend == nil || !slices.Equal(open.Spend.Groups, answer.Groups) {
			t.Errorf("the message of an open zone: %+v", open.Spend)
		}
		logged := uint64(0)
		for _, line := range s.log.lines(t, "handled request") {
			d, _ := line["rate_limit"].(map[string]any)
			cost, ok := d["cost"].(float64)
			if !ok || d["zone"] != "money" || d["decision"] != "allowed" || d["costs"] != nil {
				t.Fatalf("the access log has %v", d)
			}
			logged += uint64(cost)
		}
		if logged != all {
			t.Errorf("the access log has costs of %d, want %d", logged, all)
		}
	})
}

// TestSpendIsBounded names more groups than are kept, with values that are long, are no text or have
// what separates values.
func TestSpendIsBounded(t *testing.T) {
	s := spends(t, "")
	ask := func(model string) {
		body, err := json.Marshal(map[string]string{"model": model})
		if err != nil {
			t.Fatal(err)
		}
		s.want(req{method: "POST", path: "/?in=1&out=1", body: string(body), header: map[string]string{"X-Team": "team-1", "Content-Type": "application/json"}}, 200)
	}
	for model, group := range map[string]string{
		"a / b":                        `"a / b"`,
		"a/b":                          "a/b",
		"other":                        "other",
		"-":                            `"-"`,
		"/ a":                          `"/ a"`,
		`"a / b"`:                      `"\"a / b\""`,
		strings.Repeat("x", 64):        strings.Repeat("x", 64),
		strings.Repeat("x", 100_000/2): strings.Repeat("x", 55) + "~4813b505",
		strings.Repeat("x", 65):        strings.Repeat("x", 55) + "~b42b1787",
		strings.Repeat("é", 40) + "y":  strings.Repeat("é", 27) + "~188fadd4",
		"x" + strings.Repeat("é", 40):  "x" + strings.Repeat("é", 27) + "~21e77707",
		"\"\nx":                        `"\"\nx"`,
	} {
		ask(model)
		if _, groups := s.spend("zones/money/spend"); groups["team-1 / "+group] != 6 {
			t.Errorf("%.20q: %v", model, groups)
		}
	}
	for n := range 300 {
		ask(fmt.Sprint("model-", n))
	}
	answer, groups := s.spend("zones/money/spend")
	if len(groups) != metrics.MaxGroups+1 || answer.All != 6*312 || groups["other"] != 6*112 {
		t.Errorf("%d groups, %d in all, %d of others", len(groups), answer.All, groups["other"])
	}
	for group := range s.groupSeries("money") {
		if len(group) > 2*64+3 || !utf8.ValidString(group) {
			t.Errorf("group %q", group)
		}
	}
}

// TestSpendOfOtherTexts checks groups of headers that are no text, or that a request repeats, in a zone
// whose cost is known before: it costs that if the response tells less.
func TestSpendOfOtherTexts(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key everyone
				cost 3
				settle {http.response.header.X-Tokens}
				group_by {header.X-Team}
				rule 1000/1h
			}
			zone hidden {
				key everyone
				settle {http.response.header.X-Tokens}
				rule 1000/1h
			}
		}
		header X-Tokens 2
		respond ok`})
	for _, team := range []string{"\xff\xfe", "caf\xe9", strings.Repeat("\xff\x20", 100)} {
		s.want(req{header: map[string]string{"X-Team": team}}, 200)
	}
	r := req{}.http(s)
	r.Header["X-Team"] = []string{"a", "b"}
	if resp, err := s.client.Do(r); err != nil || resp.Body.Close() != nil {
		t.Fatal(err)
	}
	ended(t)
	answer, groups := s.spend("zones/z/spend")
	if answer.All != 12 || answer.Unit != "units" || groups["\uFFFD"] != 3 || groups["caf\uFFFD"] != 3 || groups["-"] != 3 {
		t.Errorf("%+v", answer)
	}
	var all cli.Spends
	if s.admin("GET", "spend", "", &all); len(all.Zones) != 1 {
		t.Errorf("%+v", all)
	}
	for zone, want := range map[string]string{"hidden": "want group_by", "none": "there is none of this name"} {
		if status, text := s.admin("GET", "zones/"+zone+"/spend", "", nil); status != 404 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", zone, status, text)
		}
	}
}

// TestSpendOfAll adds up the costs of three instances.
func TestSpendOfAll(t *testing.T) {
	srv := redistest.Start(t)
	s := spends(t, redisStore(srv.Addr, "timeout 5s"))
	s.want(req{method: "POST", path: "/?in=10&out=5", body: `{"model": "m"}`, header: map[string]string{"X-Team": "team-1", "Content-Type": "application/json"}}, 200)
	own := s.zones().Instance
	for i, groups := range [][]metrics.GroupCost{
		{{Group: "team-1 / m", Cost: 100}, {Group: "team-2 / m", Cost: 1}},
		{{Group: "team-1 / m", Cost: 1000}, {Group: "other", Cost: 7}},
	} {
		m := caddyNamed(fmt.Sprint(i), own, 1, 1)
		m.Zones[0].Zone, m.Zones[0].Groups = "money", groups
		join(t, redis.ConnOptions{Addresses: []string{srv.Addr}}, m)
	}
	want := map[string]uint64{"team-1 / m": 1140, "team-2 / m": 1, "other": 7}
	until(t, "three answers", func() bool {
		answer, groups := s.spend("zones/money/spend?fleet")
		return answer.Fleet != nil && answer.Fleet.Answered == 3 && answer.All == 1148 && maps.Equal(groups, want)
	})
	if out, err := s.shell("", "spend", "--fleet"); err != nil || !strings.HasPrefix(out, "3 of 3 instances") || !strings.Contains(strings.Join(strings.Fields(out), " "), "team-1 / m 1140 99 %") {
		t.Errorf("%v\n%s", err, out)
	}
	if answer, groups := s.spend("zones/money/spend"); len(groups) != 1 || answer.All != 40 || answer.Fleet != nil {
		t.Errorf("this instance: %+v", answer)
	}
}

// TestSpendOfAllFits checks that what an instance tells the others is bounded, and that of zones with
// many groups only the greatest are told, with the sum of the rest.
func TestSpendOfAllFits(t *testing.T) {
	srv := redistest.Start(t)
	const zones, groups = 8, 120
	var site strings.Builder
	for z := range zones {
		fmt.Fprintf(&site, "zone z%d {\nkey everyone\nsettle {http.request.header.X-Cost}\ngroup_by {header.X-Group}\nrule 1000000000/1h\nstore local\n}\n", z)
	}
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: "rate_limit {\n" + site.String() + "}\nrespond ok"})
	all := uint64(0)
	for n := range groups {
		cost := 1 + n%7
		all += uint64(cost)
		s.want(req{header: map[string]string{"X-Group": fmt.Sprint(n, strings.Repeat("-", 60)), "X-Cost": strconv.Itoa(cost)}}, 200)
	}
	ended(t)
	answer, _ := s.spend("zones/z0/spend?fleet")
	if answer.All != all || len(answer.Groups) != groups {
		t.Errorf("this instance: %d in %d groups, want %d", answer.All, len(answer.Groups), all)
	}
	var m cli.Member
	until(t, "the figures", func() bool {
		for _, text := range srv.Client().HGetAll(t.Context(), "diana:fleet").Val() {
			if err := json.Unmarshal([]byte(text[8:]), &m); err != nil || len(text) > stores.MaxFigures {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
		}
		return len(m.Zones) > 0
	})
	whole, cut := 0, 0
	for _, z := range m.Zones {
		sum := uint64(0)
		for _, g := range z.Groups {
			sum += g.Cost
		}
		switch len(z.Groups) {
		case groups:
			whole++
		case 20:
			cut++
		}
		if sum != all {
			t.Errorf("zone %s: groups with %d in all, want %d", z.Zone, sum, all)
		}
	}
	if whole == 0 || cut == 0 || whole+cut != zones {
		t.Errorf("%d zones with all groups, and %d with the greatest", whole, cut)
	}
	line := s.log.lines(t, "handled request")[1]["rate_limit"].(map[string]any)
	if costs, _ := line["costs"].(map[string]any); len(costs) != zones || costs["z7"] != 2.0 || line["cost"] != 2.0 || line["zone"] != "z0" {
		t.Errorf("the access log has %v", line)
	}
}

// TestCostInAccessLog checks that the cost of a zone of one handler is beside the denial by another.
func TestCostInAccessLog(t *testing.T) {
	s := serve(t, setup{site: `
		route {
			rate_limit {
				zone points {
					key everyone
					cost 3
					settle {http.response.header.X-Points}
					rule 100/1h
				}
			}
			rate_limit {
				zone requests {
					rule 1/1h name hourly
				}
			}
			header X-Points 5
			respond ok
		}`})
	s.want(req{}, 200, 429)
	ended(t)
	lines := s.log.lines(t, "handled request")
	for i, want := range []string{
		"map[cost:5 decision:allowed rule: zone:points]",
		"map[cause:rule costs:map[points:3] decision:denied rule:hourly zone:requests]",
	} {
		if got := fmt.Sprint(lines[i]["rate_limit"]); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// TestKeysByCost checks that keys are ranked by what their requests cost: by the admin API, the command
// line and all instances, with their names; and that a zone whose responses tell no cost has no such ranking.
func TestKeysByCost(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			log_key
			zone budget {
				key {query.k}
				rule 1000000/1h
				settle {response.body.total}
			}
			zone plain {
				key {query.k}
				rule 1000000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		answering("application/json", `{"total":`+r.URL.Query().Get("n")+`}`)(w, r)
		return nil
	})})
	for _, k := range []string{"often", "often", "often", "often"} {
		s.send(req{path: "/?n=1&k=" + k})
	}
	s.send(req{path: "/?n=700&k=dear"})
	s.send(req{path: "/?n=300&k=dear"})
	s.send(req{path: "/?n=0&k=free"})
	var top cli.Top
	s.admin("GET", "zones/budget/top", "", &top)
	got := make([]string, 0, 2)
	for _, h := range top.Costly[:min(2, len(top.Costly))] { // the request that found the server ready has cost 1
		got = append(got, fmt.Sprint(h.Name, " ", h.Times))
	}
	if want := []string{"dear 1000", "often 4"}; !slices.Equal(got, want) {
		t.Errorf("keys by cost: %v, want %v", got, want)
	}
	if top.Busy[0].Name != "often" {
		t.Errorf("busiest: %v", top.Busy)
	}
	out, err := s.shell("", "top", "budget")
	if words := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(words, "MOST COSTLY COST KEY NAME 1 1000 ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := s.shell("", "top", "plain"); err != nil || strings.Contains(out, "COSTLY") {
		t.Errorf("%v\n%s", err, out)
	}
}
