package config

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/key"
)

// Charge is what a request is charged, before and after its response.
type Charge struct {
	Fixed    int64     // the cost; 0: a placeholder's value
	Statuses *Statuses // the statuses of the responses that are charged; nil: all

	Settle Settle // the final cost, which the response tells; nil: none
	Mapped bool   // whether the cost may use a variable of map, which may read the body

	GroupBy *GroupBy // what costs are added up by; nil: they are not

	zone *Zone
	cost key.Template // with tokens, reserve
}

// charge checks cost, settle and count_status, and returns them parsed. of reads responses.
func (z *Zone) charge(of Responses) (c Charge, err error) {
	c.zone, c.Fixed = z, z.fixedCost()
	if c.cost, err = parseCost("cost", z.Cost); err != nil {
		return c, err
	}
	if _, ok := c.cost.Constant(); !ok {
		c.Fixed = 0
	}
	if z.Tokens != nil && (z.Cost != "" || z.Settle != "" || z.Hold) {
		return c, errors.New("tokens says what is held and charged: want no cost, settle and hold beside it")
	}
	if z.Settles() {
		if of == nil {
			return c, errors.New("settle and tokens: want Responses to check them")
		}
		if c.Settle, err = of.Settle(z); err != nil {
			return c, err
		}
	}
	if z.Tokens != nil {
		c.Fixed = 0
		if c.cost, err = parseCost("reserve", z.Tokens.Reserve); err != nil {
			return c, err
		}
	}
	if c.GroupBy, err = parseGroupBy(z.GroupBy); err != nil {
		return c, err
	}
	c.Mapped = slices.ContainsFunc(c.Placeholders(), func(name string) bool { return !strings.HasPrefix(name, key.BodyPrefix) })
	c.Statuses, err = parseStatuses(z.CountStatus)
	return c, err
}

// CostPlaceholders returns the names of the placeholders of the cost before the response.
func (c *Charge) CostPlaceholders() []string { return c.cost.Placeholders() }

// Placeholders returns the names of the placeholders of cost, or reserve, settle and group_by.
func (c *Charge) Placeholders() []string {
	names := c.cost.Placeholders()
	if c.Settle != nil {
		names = append(names, c.Settle.Placeholders()...)
	}
	if c.GroupBy != nil {
		names = append(names, c.GroupBy.Placeholders()...)
	}
	return names
}

// Cost returns what a request is charged before its response. It returns 1 and
// false if a placeholder's value is not a number of at least 1.
func (c *Charge) Cost(r *http.Request) (h Hold, ok bool) {
	switch {
	case c.Fixed > 0:
		return Hold{Cost: c.Fixed, Asked: c.Fixed}, true
	case c.Counts() && !Unsafe(r.Method):
		return Hold{Cost: 1}, true
	case c.Counts() && c.zone.Tokens.Reserve == "":
		return c.Settle.Estimate(r)
	}
	n, ok := c.cost.Number(r)
	if !ok || n < 1 {
		return Hold{Cost: 1}, false
	}
	if c.Counts() {
		n = max(n, c.Settle.Bound(r))
	}
	n = min(n, MaxCost)
	return Hold{Cost: n, Asked: n}, true
}

// Counts reports whether tokens are charged, which the request's body has too.
func (c *Charge) Counts() bool { return c.zone.Tokens != nil }

// reserved returns the reserve of tokens, if it is a number; 0: it is not.
func (c *Charge) reserved() int64 {
	if !c.Counts() {
		return 0
	}
	text, _ := c.cost.Constant()
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// ReadsBody reports whether the cost, or what it is added up by, depends on the request's body.
func (c *Charge) ReadsBody() bool {
	if c.GroupBy.ReadsBody() {
		return true
	}
	if c.Counts() {
		return true // what bounds the output is there
	}
	return c.cost.ReadsBody()
}

// Measures reports whether the response to a request tells what settles its cost, as it passes: that to
// a GET may repeat the tokens that another was charged. The Content-Type says nothing, since upstreams may
// ignore it.
func (c *Charge) Measures(r *http.Request) bool {
	return c.Settle != nil && (!c.Counts() || Unsafe(r.Method))
}

// AfterResponse reports whether something is charged only after the response.
func (c *Charge) AfterResponse() bool { return c.Settle != nil || c.Statuses != nil }

// Settlement returns what an admitted request of the given cost is charged after its response,
// beside what it was charged before. Nobody gets more by hanging up: if the client is gone before
// there is a status ([Gone]), it counts, and a response that was cut costs at least what was held.
// A request that the next handler was never given, whose Response is zero, is charged nothing. unknown is
// whether the response did not tell all that settle asks for.
func (c *Charge) Settlement(r *http.Request, cost int64, told *Response) (charge int64, unknown bool) {
	counts := told.End == Gone || c.Statuses.Counts(told.Status) || told.Failed != 0 && c.Statuses.Counts(told.Failed)
	switch {
	case !c.AfterResponse(), !counts, told.End == Never:
		return 0, false
	case c.Settle == nil:
		return cost, false
	case c.Counts() && told.Measured == nil:
		return 0, false // a request that only reads
	}
	m := told.Measured
	if m == nil { // of a log
		m = c.Settle.Measure(r, false)
	}
	n, known := m.Cost(*told)
	unknown = told.End > Whole || !known && told.Status < http.StatusBadRequest
	if !known && !unknown {
		n = 0 // an error that does not tell its cost
	}
	if !c.zone.Holds() {
		if charge = max(0, n-cost); c.Statuses != nil {
			charge += cost
		}
		return charge, unknown
	}
	if unknown {
		n = max(n, cost)
	}
	return n, unknown
}

// Unsafe reports whether requests of a method may change something. CONNECT opens a WebSocket over
// HTTP/2 and HTTP/3, as GET does over HTTP/1.
func Unsafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodConnect:
		return false
	}
	return true
}

// Whole returns the total charge of a request of the given cost that is charged charge after its
// response.
func (c *Charge) Whole(cost, charge int64) int64 {
	if c.zone.Holds() || c.Statuses != nil {
		return charge
	}
	return cost + charge
}

// Statuses are the statuses of the responses that are charged.
type Statuses struct {
	codes   map[int]bool
	classes [6]bool // from 2
}

func parseStatuses(list []Value) (*Statuses, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // none are configured
	}
	s := &Statuses{codes: make(map[int]bool)}
	for _, v := range list {
		text := strings.ToLower(string(v))
		if class, ok := strings.CutSuffix(text, "xx"); ok && len(class) == 1 && class[0] >= '2' && class[0] <= '5' {
			s.classes[class[0]-'0'] = true
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || !option.IsWhole(text) || n < 200 && n != http.StatusSwitchingProtocols || n > 599 {
			return nil, fmt.Errorf("count_status %q: want the status of a final response, such as 401, or a class such as 4xx", v)
		}
		s.codes[n] = true
	}
	return s, nil
}

// Counts reports whether a response with the status is charged.
func (s *Statuses) Counts(status int) bool {
	return s == nil || s.codes[status] || status/100 < len(s.classes) && s.classes[status/100]
}
