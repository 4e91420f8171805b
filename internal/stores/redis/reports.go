package redis

import (
	"encoding/binary"

	"github.com/dianalimiter/diana/stores"
)

// replace adds the reports of what requests hold of the keys of a check under rules of another kind,
// which do not count from now on. It returns how many it added.
func (p *permits) replace(q *call, check *stores.Check, at *clock) (n int) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if _, cost := z.Holds(); !cost || check.Peek {
			continue
		}
		p.mu.Lock()
		rec := p.recordOf(z.Counter, z.Key, z.Tag)
		before := p.deciding[rec.permits]
		if p.deciding[rec.permits], rec.replaced = rec, false; before != nil && before != rec {
			before.replaced = true
			p.changed(before) // again, should this call fail
			q.reportOf(before, at)
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// leave fills in the reports of a batch that is about to be sent.
func (p *permits) leave(batch []*call) {
	if !reports(batch) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.number
	for _, q := range batch {
		for i := range q.reports {
			p.fill(q, &q.reports[i], before)
		}
	}
}

// reports says whether a batch has any reports.
func reports(batch []*call) bool {
	for _, q := range batch {
		if len(q.reports) > 0 {
			return true
		}
	}
	return false
}

// fill fills in a report. All checks of a key in one call share one report, which has a number above before.
func (p *permits) fill(q *call, r *report, before int64) {
	rec := p.recordOf(r.counter, r.key, r.tag)
	if rec.last.number <= before && rec.leaves(p.number+1, p.clock()) {
		p.number++
		p.touch(rec, p.clock())
	}
	r.rec, r.sent = rec, sent{number: overtaken}
	if rec.last.number > before {
		r.sent = rec.last
	}
	b := q.ops[r.op].b[r.at:r.at]
	b = binary.LittleEndian.AppendUint64(b, rec.id)
	for _, v := range [...]int64{r.sent.number, rec.held, rec.heldCost(), rec.other(), rec.charges.total, rec.charges.acked} {
		b = appendNumber(b, v)
	}
}

// arrive applies the replies to a batch, or the error of all. Until abandon is called,
// what Redis granted to a check counts as held.
func (p *permits) arrive(batch []*call, err error) {
	if !reports(batch) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range batch {
		for i := range q.reports {
			r := &q.reports[i]
			ran := err == nil || mayHaveRun(err)
			r.rec.arrived(r.sent, ran)
			flags := q.zones[r.reply].flags
			switch {
			case err == nil && flags != flagFailed && r.sent.number != overtaken:
				p.answered(r, flags)
			case err != nil && ran && r.permit != nil:
				p.changed(r.rec) // Redis is to be told that this report does not count
			case !r.rec.isKnown():
				p.tellSoon(r.rec)
			}
		}
	}
	for _, q := range batch {
		for i := range q.reports {
			p.drop(q.reports[i].rec)
		}
	}
}

// answered takes the reply to a report.
func (p *permits) answered(r *report, flags byte) {
	rec := r.rec
	if now := p.clock(); flags&flagMissing != 0 && rec.stored != 0 && rec.isMissing(now) && now-p.lost.Load() >= loseEvery.Microseconds() {
		p.lose()
	}
	if flags&flagCharged == 0 {
		if rec.denied(r.sent) {
			rec.repeat(p.number + 1)
			p.tellSoon(rec)
		}
		return
	}
	rec.isStored(r.sent)
	if r.permit != nil {
		r.granted = true
		p.add(rec, 1, r.cost)
		if r.sent.number == rec.stored {
			rec.told += r.cost
		}
	}
}

// abandon releases what was granted to a call whose caller did not wait for the reply.
func (p *permits) abandon(q *call) {
	if len(q.reports) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range q.reports {
		if r := &q.reports[i]; r.granted {
			r.granted = false
			p.add(r.rec, -1, -r.cost)
			p.changed(r.rec)
		}
	}
}
