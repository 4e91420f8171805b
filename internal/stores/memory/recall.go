package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// What Redis last said of a key denies further checks of it without a call: an admission that was denied
// stays denied until its retry time, whatever other requests are charged meanwhile. Zone, rule and numbers are
// exact but for what other instances were charged since. They are those of an estimate of Redis' clock that is
// never behind it, and ahead of it by at most the duration of the call.

// Look says what is to be known of a zone's key before a call: whether this instance has a snapshot that
// still counts, whether it has something to hand over, and whether what Redis said of it may deny the
// check. local is the clock of this process.
func (n *Snapshots) Look(z *stores.ZoneCheck, local int64) (known, due, full bool) {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	if x != nil {
		return n.layout.live(x, z.Counter.Rules, local), x.due(), x.has(markFull)
	}
	return false, false, false
}

// Recall sets the results of a zone by what Redis last said of its key. It returns the time by Redis'
// clock, 0 if nothing was said, and reports whether that is what Redis would say now: Redis has told it in
// answer to a call that left at since or later, under the same override, has been told of everything, and
// has charged nothing since (see Ask). local is the clock of this process.
func (n *Snapshots) Recall(z *stores.ZoneCheck, local, since int64) (at int64, exact bool) {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	if x == nil || !x.has(markTold) || !n.layout.recallable(x, z.Rules) {
		return 0, false
	}
	at, exact = local+x[snapshotOffset], !x.due() && !x.has(markCharged) && x.asked() >= since && x.override() == z.Counter.Override
	for i, r := range z.Rules {
		told := n.layout.told(x, i)
		if p, ok := r.(algorithms.Partial); ok {
			r, exact = p.Recalled(), exact && p.Recalls(told, at, z.Cost)
		}
		res := &z.Results[i]
		res.Verdict = r.Judge(told, at, z.Cost, 0)
		res.Count(r, told, at, 0)
		z.Admits = z.Admits && res.Admit
	}
	return at, exact
}

// Ask makes the next check of a key ask Redis, which charged the key until now and reported nothing of it: replies
// up to now, on Redis' clock, know nothing of the charge. local is the clock of this process.
func (n *Snapshots) Ask(k stores.Key, local int64) {
	s, x := n.lockKey(k)
	defer s.mu.Unlock()
	if x != nil && x.has(markTold) {
		x[snapshotMarks] |= markCharged
		x[snapshotTime] = max(x[snapshotTime], local+x[snapshotOffset])
	}
}
