package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/hash"
)

// The operations of the script.
const (
	opDecide = 1
	opFinish = 2
	opReport = 3 // report what an instance holds
	opBeat   = 4
	opGuard  = 5  // decide one zone without permits that has a rule with a block
	opPlain  = 6  // decide one zone without permits and blocks
	opHand   = 7  // hand over a snapshot, debts, or both
	opPeek   = 8  // decide, and charge nothing
	opLease  = 9  // decide zones without permits, and charge more in advance
	opBlock  = 10 // put a block back
	opReset  = 11 // reset a key
	opAgain  = 12 // repeat an earlier reset of a key
)

// What a zone's requests hold until their responses.
const (
	holdNothing = 0
	holdPermit  = 1
	holdCost    = 2

	holdGuarded = 4 // added for a zone that has a rule with a block
)

// The marks of a zone.
const (
	markShadow = 1
	markKnown  = 2
	markJoined = 4
)

// marksOf returns the marks by which the script tells a zone in shadow from those that enforce their rules.
func marksOf(check *stores.Check, i int) (marks byte) {
	if check.IsShadow(i) {
		if marks = markShadow; check.Joined(i) {
			marks |= markJoined
		}
	}
	return marks
}

// readsPermits reports whether the script reads what requests hold of a zone's key: the zone's requests take permits,
// or see those of others. The script takes none for a check without a report.
func readsPermits(z *stores.ZoneCheck) bool {
	permit, _ := z.Holds()
	return permit || z.SeesHeld
}

// appendZone appends a zone as the script's zone_read expects it. guarded says that the zone has a rule with a block:
// the script does not judge it while its key is blocked. at is the clock of the node.
func (p *prepared) appendZone(b []byte, z *stores.ZoneCheck, marks byte, cost int64, guarded bool, at *clock) []byte {
	rules := p.rulesAt(z.Counter, at)
	if z.Known {
		marks |= markKnown
	}
	b = append(b, byte(len(z.Counter.Rules)), marks)
	hold := byte(holdNothing)
	if _, cost := z.Holds(); cost {
		hold = holdCost
	} else if readsPermits(z) {
		hold = holdPermit
	}
	if guarded {
		hold |= holdGuarded
	}
	b = append(b, hold)
	b = appendBool(b, p.packed.logs)
	b = appendNumber(b, cost)
	b = append(b, p.packed.sizes...)
	if hold&^holdGuarded != holdNothing {
		b = appendNumber(b, z.Counter.InFlight)
		b = append(b, make([]byte, reportSize)...) // filled in when the call leaves
	}
	var grows []byte
	if guarded {
		grows = p.packed.grows
		b = appendSize(b, len(rules)+len(grows))
		for _, d := range z.Counter.Blocks {
			b = appendNumber(b, d)
		}
		b = appendNumber(b, blocksSince(z.Counter, at))
	}
	return append(append(b, rules...), grows...)
}

// blocksSince returns from when on blocks of a counter's keys count, by a node's clock: earlier ones ended because no
// rule of the zone blocked any more. 0: all count.
func blocksSince(c *stores.Counter, at *clock) int64 {
	if b := memory.BlocksOf(c); b != nil && b.Ended > 0 {
		return at.shared(b.Ended)
	}
	return 0
}

// The parts of a handover, also those that Redis refuses, as in [outage.Part].
const (
	handTold  = 1
	handDebts = 2
)

// appendHandover appends the operation that hands over a key's snapshot and debts.
func appendHandover(b []byte, h *outage.Handover, at *clock) []byte {
	what := byte(0)
	if h.Told != nil {
		what |= handTold
	}
	if h.Debts != nil {
		what |= handDebts
	}
	c := h.Zone.Counter
	prepared := prepare(c)
	p := &prepared.packed
	b = append(b, opHand, 2, what, byte(len(c.Rules)), 0, holdNothing)
	b = appendBool(b, p.logs)
	b = appendNumber(b, 1)
	b = append(append(b, p.sizes...), prepared.rulesAt(c, at)...)
	for _, v := range [...]int64{h.Time, h.Tolerance, h.ToldSince, h.OwedSince, 8 * int64(words(h.Told))} {
		b = appendNumber(b, v)
	}
	for _, of := range [][][]int64{h.Told, h.Debts} {
		for _, words := range of {
			for _, v := range words {
				b = appendNumber(b, v)
			}
		}
	}
	return b
}

// words returns the number of words of all rules.
func words(rules [][]int64) (n int) {
	for _, r := range rules {
		n += len(r)
	}
	return n
}

// The Redis keys of opReset. The mark says that the zone's key was reset lately.
const (
	resetBoth = 0
	resetMark = 1
	resetKey  = 2
)

// appendReset appends the operation that resets a key, and sets its mark for the time marked; 0: it sets none.
func appendReset(b []byte, part byte, marked time.Duration) []byte {
	keys := byte(1)
	if part == resetBoth {
		keys = 2
	}
	return appendNumber(append(b, opReset, keys, part), marked.Milliseconds())
}

// appendAgain appends the operation that repeats a reset. The mark stays for marked milliseconds. The reset was ago
// microseconds ago, and at the time by on Redis' clock, which may have been set since. older says that Redis may have
// counts from before the reset.
func appendAgain(b []byte, marked, ago, by int64, older bool) []byte {
	b = appendNumber(appendNumber(appendNumber(append(b, opAgain, 2), marked), ago), by)
	if older {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendName appends the name of a zone's key.
func appendName(b []byte, prefix string, z *stores.ZoneCheck) []byte {
	return appendOwnKey(append(appendHash(b, prefix, z), z.Counter.Kinds...), z)
}

// appendPermits appends the name of the key of a zone's permits.
func appendPermits(b []byte, prefix string, z *stores.ZoneCheck) []byte {
	return appendOwnKey(append(appendHash(b, prefix, z), "permits"...), z)
}

// appendBlock appends the name of the key of a zone's block.
func appendBlock(b []byte, prefix string, z *stores.ZoneCheck) []byte {
	return appendOwnKey(append(appendHash(b, prefix, z), "block"...), z)
}

// resetSuffix ends the name of the key that says that a key was reset lately.
const resetSuffix = ":reset"

// resetName returns the name of the key that says that a zone's key was reset lately.
func resetName(prefix string, z *stores.ZoneCheck) string {
	return string(appendName(nil, prefix, z)) + resetSuffix
}

// appendHash appends the common prefix of the names of a zone's keys.
func appendHash(b []byte, prefix string, z *stores.ZoneCheck) []byte {
	b = append(b, prefix...)
	b = append(b, ":{"...)
	b = hash.AppendKey(b, z.Tag)
	b = append(b, "}:"...)
	b = append(b, z.Counter.Zone...)
	return append(b, ':')
}

// appendOwnKey appends the key, unless it is the tag. A key that is counted in addition to the zone's key has the tag
// of the zone's key, and a call may contain both.
func appendOwnKey(b []byte, z *stores.ZoneCheck) []byte {
	if z.Tag == z.Key {
		return b
	}
	return hash.AppendKey(append(b, '-'), z.Key)
}

// reply parses a reply of the script.
type reply struct {
	b   string
	err error
}

// next returns the next n bytes.
func (r *reply) next(n int) string {
	if r.err != nil || n < 0 || len(r.b) < n {
		r.err = errReply
		return ""
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

func (r *reply) byte() byte {
	if s := r.next(1); r.err == nil {
		return s[0]
	}
	return 0
}

func (r *reply) uint32() uint32 {
	if s := r.next(4); r.err == nil {
		return binary.LittleEndian.Uint32([]byte(s))
	}
	return 0
}

// number reads a double that must be an integer.
func (r *reply) number() int64 {
	s := r.next(8)
	if r.err != nil {
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(s)))
	if !(math.Abs(f) <= 1<<53) || f != math.Trunc(f) {
		r.err = errReply
		return 0
	}
	return int64(f)
}

// failed returns the error of the next operation, if it failed.
func (r *reply) failed() error {
	if r.err != nil || len(r.b) == 0 || r.b[0] != flagFailed {
		return r.err
	}
	r.byte()
	return failedOp(r.next(int(r.uint32())))
}

// The flags of a zone in a reply.
const (
	flagAdmits  = 1
	flagCharged = 2
	flagStepped = 4
	flagFull    = 8
	flagFailed  = 16  // the operation failed; the error follows
	flagSeen    = 32  // the key exists, and its states follow
	flagOlder   = 32  // of a heartbeat: Redis may have gone back to what it had before
	flagMissing = 64  // Redis had no entry of this instance
	flagLost    = 128 // the key does not exist, though this instance has a snapshot of it
)

// readZone reads the reply for a zone. It calculates the results from the states before the decision, as the script
// does. If the verdict is not the script's, it returns errDisagree.
func (r *reply) readZone(z *stores.ZoneCheck, now int64) (stepped bool, err error) {
	flags := r.byte()
	p := &prepare(z.Counter).packed
	var view reply
	if flags&flagSeen != 0 {
		view.b = r.next(p.view)
	}
	z.Held = 0
	if readsPermits(z) {
		z.Held = r.number()
		r.number() // the number of permits, which the script has compared
	}
	if z.Lease.Want > 0 {
		z.Lease.Granted = r.number()
	}
	var block stores.Block
	if z.Guarded() {
		block = r.readBlock()
	}
	if r.err != nil {
		return false, r.err
	}
	if flags&flagLost != 0 {
		return false, errLost
	}
	stepped = flags&flagStepped != 0
	if block.Until > 0 && !block.Started {
		z.Charged, z.Block = false, block
		z.DenyBlocked(now)
		return stepped, nil
	}
	if !block.Started {
		z.Block = block
	}
	z.Charged, z.Full = flags&flagCharged != 0, flags&flagFull != 0
	z.Admits = !z.Full
	if err := view.readRules(z, p, now); err != nil {
		return false, err
	}
	if admits := flags&flagAdmits != 0; admits != z.Admits {
		z.Admits = admits
		return false, fmt.Errorf("zone %s: %w", z.Counter.Zone, errDisagree)
	}
	if block.Started && !setStarted(z, block, now) {
		return false, fmt.Errorf("zone %s: block until %d: %w", z.Counter.Zone, block.Until, errDisagree)
	}
	if z.Charged && z.Lease.Want > 0 && z.Lease.Granted != leasable(z, now) {
		return false, fmt.Errorf("zone %s: lease of %d: %w", z.Counter.Zone, z.Lease.Granted, errDisagree)
	}
	return stepped, nil
}

// errLost says that Redis has lost a key, and has not decided.
var errLost = errors.New("the key has been lost")

// readRules reads the states of the rules, and judges the request by them.
func (r *reply) readRules(z *stores.ZoneCheck, p *packed, now int64) error {
	seen := len(r.b) > 0
	var views reply
	if seen {
		if !p.logs {
			r.next(header)
		}
		states := max(0, len(r.b)-p.views)
		r.b, views.b = r.b[:states], r.b[states:]
	}
	for i, rule := range z.Rules {
		from := r
		if g, ok := rule.(algorithms.Growing); ok {
			rule, from = g.View(), &views
			if seen {
				r.next(8 * g.Header()) // the position of its ring
			}
		}
		s := make(algorithms.State, rule.Words())
		if seen {
			for w := range s {
				s[w] = from.number()
			}
		}
		rule.Repair(s, now)
		algorithms.Follow(rule, s, now)
		v := rule.Judge(s, now, z.Cost, z.Held)
		z.Results[i].Verdict = v
		z.Admits = z.Admits && v.Admit
		z.Results[i].State, z.Results[i].Rule = s, rule
	}
	if len(r.b) > 0 || views.err != nil {
		r.err = errReply
	}
	return r.err
}

// leasable returns how much the script may charge in advance for a zone. Like the script, it halves Lease.Want until
// the rules would admit twice as much: the other half is left to other instances.
func leasable(z *stores.ZoneCheck, now int64) (more int64) {
	for more = z.Lease.Want; more > 0; more /= 2 {
		admits := true
		for i := range z.Results {
			res := &z.Results[i]
			admits = admits && res.Rule.Judge(res.State, now, z.Cost+2*more, z.Held).Admit
		}
		if admits {
			break
		}
	}
	return more
}

// countResults sets the numbers of the results after the decision.
func countResults(z *stores.ZoneCheck, now, turn int64) {
	held := z.Held
	_, holds := z.Holds()
	if z.Charged && holds {
		held += z.Cost
	}
	for i := range z.Results {
		res := &z.Results[i]
		switch {
		case !z.Charged || holds:
		case z.Lease.Want > 0:
			res.Rule.Overdraw(res.State, now, z.Cost+z.Lease.Granted)
		default:
			res.Rule.Charge(res.State, now, z.Cost, turn)
		}
		res.Count(res.Rule, res.State, now, held)
	}
	if z.Block.Started {
		z.StartBlock(z.Block, now)
	}
}

// blockReplySize is the size of a key's block in a reply, in bytes.
const blockReplySize = 3*8 + 1

func (r *reply) readBlock() (b stores.Block) {
	b.Until, b.Span = r.number(), r.number()
	rule := r.number()
	b.Rule, b.Step = int32(rule%stepUnit), int32(rule/stepUnit)
	b.Started = r.byte() != 0
	if rule < 0 || rule >= stepUnit*256 {
		r.err = errReply
	}
	return b
}

// stepUnit is what the script adds to the index of a block's rule for each step.
const stepUnit = 65536

func ruleAndStep(b *memory.KnownBlock) int64 { return int64(b.Rule) + stepUnit*int64(b.Step) }

// setStarted sets the block that the script has started, and returns whether the states start the same one.
func setStarted(z *stores.ZoneCheck, b stores.Block, now int64) (agrees bool) {
	want, _ := z.StartedStep(now, b.Step)
	z.Block, z.Block.Rule = b, z.Counter.BlockingRule(b.Rule)
	return want == b
}

// The report in an encoded zone.
const (
	reportSize = 7 * 8 // bytes
	reportAt   = 28    // its offset
)

// refused reads the reply to a handover: the parts that Redis refused, or the error.
func (r *reply) refused() (outage.Part, error) {
	if err := r.failed(); err != nil {
		return 0, err
	}
	return outage.Part(r.byte()), nil
}
