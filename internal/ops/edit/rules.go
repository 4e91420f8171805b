package edit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
)

// set changes a rule of a zone: [<rule>] <rate> [burst <n>] [block <duration>]. The word configured removes the zone
// from the document.
func set(own object, z *Zone, words []string) error {
	list, err := rulesOf(own, z)
	if err != nil {
		return err
	}
	if slices.Equal(words, []string{"configured"}) {
		clear(own)
		return nil
	}
	at, all := 0, make([]string, len(list))
	for i := range list {
		all[i] = nameOf(list[i], i)
	}
	if len(words) > 0 && !strings.Contains(words[0], "/") {
		if at = slices.Index(all, words[0]); at < 0 {
			return fmt.Errorf("rule %q: want one of %s, or a rate such as 200/1m", words[0], strings.Join(all, ", "))
		}
		words = words[1:]
	} else if len(list) != 1 {
		return fmt.Errorf("set: the rules of the zone are %q: want one of them before the rate", all)
	}
	if len(words) == 0 {
		return errors.New("set: want a rate such as 200/1m, or configured")
	}
	algorithm := ""
	if at < len(z.Rules) {
		algorithm = z.Rules[at].Algorithm
	}
	rule, ok := list[at].(object)
	if !ok || rule == nil {
		return fmt.Errorf("rule %s of the document is invalid, replace it as a whole: want an object", all[at])
	}
	if err := setRule(rule, algorithm, words); err != nil {
		return err
	}
	own["rules"] = list
	return nil
}

// setRule changes a rule: <rate> [burst <n>] [block <duration>]. The default algorithm depends on
// the limit: it is named if it would be another, with which the zone would count anew.
func setRule(rule object, algorithm string, words []string) error {
	if _, varies := rule["limit_from"]; varies {
		return errors.New("the rule takes its limit from requests: change it in the configuration")
	}
	limit, window, err := config.ParseRate(words[0])
	if err != nil {
		return err
	}
	rule["limit"] = json.Number(strconv.FormatInt(limit, 10))
	if rule["window"] = DurationText(window.Duration); window.Period != 0 {
		rule["window"] = window.Period.String()
	}
	for words = words[1:]; len(words) > 0; {
		switch {
		case len(words) > 1 && words[0] == "burst":
			own, _ := rule["algorithm"].(object)
			if own == nil {
				own = object{}
				if algorithm != "" {
					own["name"] = algorithm
				}
			}
			own["burst"] = json.Number(words[1])
			rule["algorithm"], words = own, words[2:]
		case len(words) > 1 && words[0] == "block":
			if words, err = setBlock(rule, words[1:]); err != nil {
				return err
			}
			continue
		default:
			return fmt.Errorf("%q: want burst <n> or block <duration>", words[0])
		}
	}
	if rule["algorithm"] == nil && algorithm != "" && algorithm != (&config.Rule{Limit: limit}).DefaultAlgorithm() {
		rule["algorithm"] = object{"name": algorithm}
	}
	return nil
}

// setBlock changes the block of a rule to the durations that begin words, and returns the rest.
func setBlock(rule object, words []string) (rest []string, err error) {
	d, err := caddy.ParseDuration(words[0])
	if err != nil || d < 0 {
		return nil, fmt.Errorf("block %q: want a duration, such as 1h, or 0", words[0])
	}
	if d == 0 {
		delete(rule, "block")
		return words[1:], nil
	}
	var all []any
	for len(words) > 0 {
		if _, err := caddy.ParseDuration(words[0]); err != nil {
			break
		}
		all, words = append(all, words[0]), words[1:]
	}
	if rule["block"] = all; len(all) == 1 {
		rule["block"] = all[0]
	}
	return words, nil
}

// rulesOf returns the rules of a zone: the document's, or the ones in force.
func rulesOf(own object, z *Zone) (list []any, err error) {
	if list, is := own["rules"].([]any); is {
		return list, nil
	}
	for _, r := range z.Rules {
		rule, err := parse(r.Config)
		if err != nil {
			return nil, err
		}
		readable(rule)
		list = append(list, rule)
	}
	return list, nil
}

// readable writes the durations of a rule as people do.
func readable(rule object) {
	for _, name := range []string{"window", "block", "step"} {
		switch v := rule[name].(type) {
		case json.Number:
			rule[name] = readableDuration(v)
		case []any:
			for i := range v {
				if n, is := v[i].(json.Number); is {
					v[i] = readableDuration(n)
				}
			}
		}
	}
	if algorithm, is := rule["algorithm"].(object); is {
		readable(algorithm)
	}
}

func readableDuration(n json.Number) string {
	ns, _ := n.Int64() // a window is one
	return DurationText(time.Duration(ns))
}

// DurationText returns a duration without units that are 0.
func DurationText(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if t, ok := strings.CutSuffix(s, zero); ok {
			s = t + zero[:1]
		}
	}
	return s
}

// nameOf returns the name of a rule: its own, or its number.
func nameOf(rule any, i int) string {
	r, _ := rule.(object)
	if name, is := r["name"].(string); is {
		return name
	}
	return strconv.Itoa(i + 1)
}
