package exact_test

import (
	"fmt"
	"slices"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// keepsItsWord checks the numbers of a decision on copies of the key: a request
// passes after the retry and not one microsecond before, and exactly the remaining
// requests pass.
func keepsItsWord(t fataler, k *key, e event, verdicts []oracle.Verdict, tr *trace) {
	longest := int64(0)
	for i, v := range verdicts {
		for _, broken := range []string{
			k.retry(i, e, v.RetryAfter),
			k.remaining(i, e.now, v.Remaining),
			k.reset(i, e.now, v.ResetAfter),
			k.holds(i, e, tr.rules[i]),
		} {
			if broken != "" {
				t.Fatalf("rule %d after the last request: %s%v", i, broken, tr)
			}
		}
		if v.RetryAfter < 0 {
			return
		}
		longest = max(longest, v.RetryAfter)
	}
	if longest == 0 {
		return
	}
	if ok, verdicts := k.clone().decide(e.now+longest, e.cost); !ok {
		t.Fatalf("after the longest retry, %d, not all rules admit: %+v%v", longest, verdicts, tr)
	}
}

// only returns a copy of the key with only the i-th rule.
func (k *key) only(i int) *key {
	return &key{t: k.t, rules: k.rules[i : i+1], states: []algorithms.State{slices.Clone(k.states[i])}}
}

// admits reports one rule's verdict at now, with no requests until then.
func (k *key) admits(i int, now, cost int64) bool {
	return k.rules[i].Judge(k.states[i], now, cost, 0).Admit
}

func (k *key) retry(i int, e event, retry int64) string {
	switch {
	case retry <= 0:
	case !k.admits(i, e.now+retry, e.cost):
		return fmt.Sprintf("it does not admit after its retry of %d", retry)
	case k.admits(i, e.now+retry-1, e.cost):
		return fmt.Sprintf("it admits a microsecond before its retry of %d", retry)
	}
	return ""
}

// remaining takes all that remains, in requests of cost 1 or, if there are too many,
// most of it in one request.
func (k *key) remaining(i int, now, remaining int64) string {
	one := k.only(i)
	const few = 20
	if remaining > few {
		if !one.send(now, remaining-few) {
			return fmt.Sprintf("it denies %d of the %d that remain", remaining-few, remaining)
		}
		remaining, _ = one.rules[0].Numbers(one.states[0], now)
		if remaining != few {
			return fmt.Sprintf("%d remain where %d should", remaining, few)
		}
	}
	for n := range remaining {
		if !one.send(now, 1) {
			return fmt.Sprintf("it admits only %d of the last %d that remain", n, remaining)
		}
	}
	if one.send(now, 1) {
		return fmt.Sprintf("it admits more than the %d that remain", remaining)
	}
	return ""
}

// send sends one request to the first rule of the key.
func (k *key) send(now, cost int64) bool {
	v := k.rules[0].Judge(k.states[0], now, cost, 0)
	if v.Admit {
		k.charge(0, now, cost, v.Delay)
	}
	return v.Admit
}

func (k *key) reset(i int, now, reset int64) string {
	r, s := k.rules[i], k.states[i]
	unused, _ := r.Numbers(make(algorithms.State, r.Words()), now)
	remaining, rest := r.Numbers(s, now+reset)
	switch {
	case remaining != unused || rest != 0 || !k.admits(i, now+reset, r.Capacity()):
		return fmt.Sprintf("after its reset of %d it has %d of %d and resets in %d", reset, remaining, unused, rest)
	case reset > 0 && k.admits(i, now+reset-1, r.Capacity()):
		return fmt.Sprintf("it is as unused a microsecond before its reset of %d", reset)
	}
	return ""
}

// holds reserves the same cost again: a rule that does not delay must judge a request
// beside the reservation like one with the sum of both costs.
func (k *key) holds(i int, e event, r oracle.Rule) string {
	if delays(r) {
		return ""
	}
	unreserved := k.rules[i].Judge(k.states[i], e.now, e.cost, 0)
	beside := k.rules[i].Judge(k.states[i], e.now, e.cost, e.cost)
	sum := k.rules[i].Judge(k.states[i], e.now, 2*e.cost, 0)
	switch {
	case beside.Admit != sum.Admit:
		return fmt.Sprintf("with %d reserved: verdict %+v, want that of the sum, %+v", e.cost, beside, sum)
	case beside.Held != (unreserved.Admit && !sum.Admit):
		return fmt.Sprintf("with %d reserved: verdict %+v, without %+v", e.cost, beside, unreserved)
	}
	return ""
}
