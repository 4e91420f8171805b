package exact_test

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/test/exact/oracle"
)

// operations returns the minimum number of verdicts that each differential test
// compares. A verdict is one rule's on one request.
func operations(t *testing.T) int {
	s := os.Getenv("DIANA_OPS")
	if s == "" {
		return 200_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("DIANA_OPS %q: want a number of at least 1", s)
	}
	return n
}

// totals counts what a differential test has compared.
type totals struct {
	verdicts, requests, admitted, peeks int
}

func TestGCRA(t *testing.T)          { differential(t, single("gcra")) }
func TestTokenBucket(t *testing.T)   { differential(t, single("token_bucket")) }
func TestLeakyBucket(t *testing.T)   { differential(t, single("leaky_bucket")) }
func TestFixedWindow(t *testing.T)   { differential(t, single("fixed_window")) }
func TestSlidingWindow(t *testing.T) { differential(t, single("sliding_window")) }
func TestSlidingLog(t *testing.T)    { differential(t, single("sliding_log")) }
func TestCalendar(t *testing.T)      { differential(t, single("calendar")) }
func TestQueues(t *testing.T)        { differential(t, drawQueues) }
func TestMixed(t *testing.T)         { differential(t, drawMixed) }

func single(algorithm string) func(*rapid.T) []oracle.Rule {
	return func(t *rapid.T) []oracle.Rule { return []oracle.Rule{drawRule(t, algorithm)} }
}

// differential compares the oracle with the arithmetic on random traces for drawn
// rules until enough verdicts are compared.
func differential(t *testing.T, draw func(*rapid.T) []oracle.Rule) {
	t.Parallel()
	var sum totals
	for want := operations(t); sum.verdicts < want; {
		rapid.Check(t, func(t *rapid.T) { compare(t, draw(t), &sum) })
	}
	t.Logf("compared %d verdicts on %d requests, of which %d were admitted and %d were peeks",
		sum.verdicts, sum.requests, sum.admitted, sum.peeks)
}

// compare runs a random trace on both.
func compare(t *rapid.T, rules []oracle.Rule, sum *totals) {
	compiled, err := compile(rules)
	if err != nil {
		t.Fatalf("%v", err)
	}
	want, got := oracle.New(rules...), newKey(t, compiled)
	tr := newTrace(beginning(t), rules, compiled)
	kinds, sizes := requests(t)
	for i := range kinds {
		if kinds[i] == 0 {
			continue
		}
		e := tr.next(kinds[i], sizes[i])
		wantAdmit, wantVerdicts := apply(want.Decide, want.Peek, e)
		gotAdmit, gotVerdicts := apply(got.decide, got.peek, e)
		tr.done(e, wantAdmit, wantVerdicts)
		if gotAdmit != wantAdmit || !slices.Equal(gotVerdicts, wantVerdicts) {
			t.Fatalf("go and oracle differ on the last request:\ngo     %v %+v\noracle %v %+v%v", gotAdmit, gotVerdicts, wantAdmit, wantVerdicts, tr)
		}
		if sizes[i]%4 == 0 {
			keepsItsWord(t, got, e, gotVerdicts, tr)
		}
		sum.add(e, wantAdmit, len(rules))
	}
}

// apply decides or peeks, as the event says.
func apply(decide func(now, cost int64) (bool, []oracle.Verdict), peek func(now, cost int64) []oracle.Verdict, e event) (bool, []oracle.Verdict) {
	if e.peek {
		return false, peek(e.now, e.cost)
	}
	return decide(e.now, e.cost)
}

func (s *totals) add(e event, admitted bool, rules int) {
	s.verdicts += rules
	s.requests++
	if admitted {
		s.admitted++
	}
	if e.peek {
		s.peeks++
	}
}
