//go:build unix

package main

var waiting = []suite{limiterTests}

// waitMutants break the queues of requests that wait.
var waitMutants = []mutant{
	{
		name: "wait-zone-bound", breaks: "one more request than may waits in a zone", in: "limiter.waitQueue.acquireSlot", suites: waiting,
		old: "if w.slots.Add(1) > max(", new: "if w.slots.Add(1) > 1+max(",
	},
	{
		name: "wait-zone-slot", breaks: "a request that is turned away keeps a slot of the zone", in: "limiter.waitQueue.acquireSlot", suites: waiting,
		old: "		w.slots.Add(-1)\n		return false", new: "		return false",
	},
	{
		name: "wait-key-bound", breaks: "one more request of a key waits than max_waiting", in: "limiter.waitQueue.join", suites: waiting,
		old: "int64(l.Len()) >= maxWaiting", new: "int64(l.Len()) > maxWaiting",
	},
	{
		name: "wait-key-slot", breaks: "a request that max_waiting turns away keeps a slot of the zone", in: "limiter.waitQueue.join", suites: waiting,
		old: "		if !counted {\n			w.releaseSlot()\n		}\n		return nil, false", new: "		return nil, false",
	},
	{
		name: "wait-turn", breaks: "the turn is not passed on", in: "limiter.waiter.leave", suites: waiting,
		old: "} else if first {", new: "} else if !first && l.Len() > 1<<30 {",
	},
	{
		name: "wait-leave-slot", breaks: "a request that has waited keeps its slot", in: "limiter.waiter.leave", suites: waiting,
		old: "	if p.slot {\n		w.releaseSlot()\n	}\n", new: "",
	},
	{
		name: "wait-slot-once", breaks: "a request that a leaky_bucket may delay takes two slots while it waits for another rule", in: "limiter.request.wait", suites: waiting,
		old: "z.slot == waitingSlot", new: "false",
	},
	{
		name: "wait-leave-key", breaks: "keys without waiting requests remain", in: "limiter.waiter.leave", suites: waiting,
		old: "		delete(w.keys, p.key)\n", new: "",
	},
	{
		name: "wait-freed", breaks: "a released permit is found by the next poll only", in: "limiter.waitQueue.freed", suites: waiting,
		old: "		oldest(l).wakeUp()", new: "		_ = oldest(l)",
	},
	{
		name: "wait-again-first", breaks: "only the oldest request of a key asks again after a reset", in: "limiter.askAgain", suites: waiting,
		old: "	for e := l.Front(); e != nil; e = e.Next() {", new: "	for e := l.Front(); e != nil; e = nil {",
	},
	{
		name: "wait-again-others", breaks: "a reset wakes the requests of all keys", in: "limiter.waitQueue.wasReset", suites: waiting,
		old: "	if l := w.keys[k]; l != nil {\n		askAgain(l)", new: "	for _, l := range w.keys {\n		askAgain(l)",
	},
	{
		name: "wait-again-never", breaks: "requests that wait do not notice other rules", in: "limiter.sleep", suites: waiting,
		old: "	case <-again:\n", new: "	case <-make(chan struct{}):\n",
	},
	{
		name: "wait-polls", breaks: "permits of other instances are never found", in: "limiter.waitQueue.wakePolls", suites: waiting,
		old: "			p.polls = false\n			p.wakeUp()", new: "			p.polls = false",
	},
	{
		name: "wait-polls-apart", breaks: "each zone polls at times of its own", in: "limiter.waiter.waitForPoll", suites: waiting,
		old: "pollEvery - clock.Elapsed()%pollEvery", new: "pollEvery + 0*clock.Elapsed()",
	},
	{
		name: "wait-polls-rare", breaks: "the permit of another instance is found after more than 100 ms", in: "limiter.waiter.waitForPoll", suites: waiting,
		old: "w.wakePolls)", new: "func() { time.Sleep(3 * pollEvery); w.wakePolls() })",
	},
	{
		name: "wait-asked", breaks: "a request whose turn has come waits for the next release", in: "limiter.waiter.wait", suites: waiting,
		old: "if !held || !p.asked {", new: "if !held {",
	},
	{
		name: "wait-continually", breaks: "a denial that names no time is asked for again continually", in: "limiter.request.wait", suites: waiting,
		old: "held = held || retry == 0", new: "_ = held || retry == 0",
	},
	{
		name: "wait-overtake", breaks: "newcomers overtake those that wait", in: "limiter.request.queued", suites: waiting,
		old: "z.zone.common.queue.has(z.key)", new: "z.zone.common.queue.has(stores.Key{})",
	},
	{
		name: "wait-peek", breaks: "a request that peeks is charged", in: "limiter.request.peek", suites: waiting,
		old: "	q.check.Peek = true\n", new: "	q.check.Peek = false\n",
	},
	{
		name: "wait-peek-admits", breaks: "a request that has only peeked passes when its time is over", in: "stores.Check.DenyFull", suites: waiting,
		old: "check.Admitted, z.Admits, z.Full = false, false, true", new: "z.Admits, z.Full = false, true",
	},
	{
		name: "wait-moves", breaks: "a request stays in the queue of the zone that denied it first", in: "limiter.request.wait", suites: waiting,
		old: "if p == nil || p.queue != &z.zone.common.queue || p.key != k || p.slot == counted {", new: "if p == nil || p.slot == counted {",
	},
	{
		name: "wait-slot-moves", breaks: "a request that waits has two slots, or none, once rules begin or end to delay it", in: "limiter.request.wait", suites: waiting,
		old: " || p.slot == counted {", new: " {",
	},
	{
		name: "wait-delay-slot", breaks: "requests that a leaky_bucket may delay acquire no slot", in: "limiter.request.acquireSlots", suites: waiting,
		old: "			z.slot = waitingSlot\n", new: "			z.zone.common.queue.releaseSlot()\n",
	},
	{
		name: "wait-delay-pass", breaks: "several requests of a key are decided without a slot", in: "limiter.request.passAll", suites: waiting,
		old: "		if !z.zone.common.queue.pass(z.key) {\n			return false\n		}\n", new: "		_ = z.zone.common.queue.pass(z.key)\n",
	},
	{
		name: "wait-delay-turn", breaks: "without a slot, a request is delayed", in: "limiter.request.acquireSlots", suites: waiting,
		old: "if q.check.Admitted && q.check.Turn == 0 && q.passAll() {", new: "if q.check.Admitted && q.passAll() {",
	},
	{
		name: "wait-delay-release", breaks: "a request that was delayed keeps its slot", in: "limiter.request.releaseSlots", suites: waiting,
		old: "			z.zone.common.queue.releaseSlot()\n", new: "			z.slot = noSlot\n",
	},
	{
		name: "wait-leaky-clamp", breaks: "max_waiting does not bound the queue of a leaky_bucket", in: "algorithms.LeakyBucket.Compile", suites: waiting,
		old: "burst = min(burst, max(sp.MaxWaiting+1, sp.Cost))", new: "burst = max(burst, max(sp.MaxWaiting+1, sp.Cost))",
	},
	{
		name: "wait-leaky-one", breaks: "max_waiting counts the request that leaves at once", in: "algorithms.LeakyBucket.Compile", suites: waiting,
		old: "max(sp.MaxWaiting+1, sp.Cost)", new: "max(sp.MaxWaiting, sp.Cost)",
	},
}

var bodies = []suite{bodyTests}

// bodyMutants break the reading of bodies and of their fields.
var bodyMutants = []mutant{
	{
		name: "body-max", breaks: "a body of more than 64 KiB is taken for whole", in: "body.Read", suites: bodies,
		old: "b.whole = int64(len(b.data)) <= size", new: "b.whole = int64(len(b.data)) <= size+1",
	},
	{
		name: "body-edge", breaks: "a body of exactly 64 KiB is not read", in: "body.Body.read", suites: bodies,
		old: "for int64(len(b.data)) <= size {", new: "for int64(len(b.data)) < size {",
	},
	{
		name: "body-announced", breaks: "a body that is announced as too large is read", in: "body.Read", suites: bodies,
		old: "|| r.ContentLength > size && !begin ||", new: "|| r.ContentLength > 4*size && !begin ||",
	},
	{
		name: "body-further", breaks: "a body is not read further for a handler with a greater max_body", in: "body.Read", suites: bodies,
		old: "if b.whole || b.next > 0", new: "if b.whole || b.data != nil || b.next > 0",
	},
	{
		name: "body-error", breaks: "a broken body ends without its error", in: "body.Read", suites: bodies,
		old: "		b.rest = errorReader{err}", new: "		b.rest = errorReader{io.EOF}",
	},
	{
		name: "body-deadline", breaks: "a body that never ends is waited for without end", in: "body.setDeadline", suites: bodies,
		old: "time.Now().Add(timeout)", new: "time.Now().Add(20*timeout)",
	},
	{
		name: "body-deadline-stays", breaks: "the bound remains for what follows", in: "body.setDeadline", suites: bodies,
		old: "_ = c.SetReadDeadline(time.Time{})", new: "_ = c",
	},
	{
		name: "body-deadline-server", breaks: "the timeout of the server is replaced", in: "body.setDeadline", suites: bodies,
		old: "ok && srv.ReadTimeout > 0", new: "ok && srv.ReadTimeout > 24*time.Hour",
	},
	{
		name: "body-encoding", breaks: "a compressed body is read", in: "body.formatOf", suites: bodies,
		old: `len(r.Header["Content-Encoding"]) > 0 || `, new: "",
	},
	{
		name: "body-types", breaks: "the first of two types counts", in: "body.formatOf", suites: bodies,
		old: `len(r.Header["Content-Type"]) != 1`, new: `len(r.Header["Content-Type"]) == 0`,
	},
	{
		name: "body-upgrade", breaks: "the stream of an upgrade is read", in: "body.formatOf", suites: bodies,
		old: `len(r.Header["Upgrade"]) > 0 || `, new: "",
	},
	{
		name: "body-charset", breaks: "a charset is ignored", in: "body.formatOf", suites: bodies,
		old: `c != "" && !strings`, new: `c == "x" && !strings`,
	},
	{
		name: "body-utf8", breaks: "invalid UTF-8 is accepted", in: "body.Body.text", suites: bodies,
		old: "if utf8.Valid(b.data) && (", new: "if (",
	},
	{
		name: "body-valid", breaks: "invalid JSON is accepted", in: "body.Body.text", suites: bodies,
		old: "(!asJSON || json.Valid(b.data)) {", new: "(!asJSON || true || json.Valid(b.data)) {",
	},
	{
		name: "body-twice", breaks: "the first of two objects of a name counts", in: "body.find", suites: bodies,
		old: "	if alike > 1 {\n		times = alike\n	}\n", new: "",
	},
	{
		name: "body-case", breaks: "a name in other letters is another name", in: "body.similar", suites: bodies,
		old: "strings.EqualFold(strings.TrimFunc(name, isPadding), other)", new: "strings.TrimFunc(name, isPadding) == other",
	},
	{
		name: "body-padding", breaks: "white space makes another value", in: "body.Body.Field", suites: bodies,
		old: "return strings.TrimFunc(v, isPadding)", new: "return v",
	},
	{
		name: "body-semicolon", breaks: "a form with a semicolon is accepted", in: "body.formField", suites: bodies,
		old: `strings.Contains(pair, ";") || `, new: "",
	},
	{
		name: "body-brackets", breaks: "in a form, a[] stands beside a", in: "body.Alike", suites: bodies,
		old: "case c != '[' && (", new: "case (",
	},
	{
		name: "body-malformed", breaks: "in a form, a name whose brackets are malformed stands beside what some programs take it for", in: "body.Alike", suites: bodies,
		old: "malformed(name) && flat", new: "false && flat",
	},
	{
		name: "body-json-brackets", breaks: "in JSON, a member a[b] stands beside the member b of a", in: "body.jsonField", suites: bodies,
		old: "times > 1", new: "times > 99",
	},
	{
		name: "body-form-twice", breaks: "the last of two fields of a form counts", in: "body.formField", suites: bodies,
		old: "case k == name && !found:", new: "case k == name && (true || !found):",
	},
	{
		name: "body-number-text", breaks: "1e2 and 100 are two", in: "body.number", suites: bodies,
		old: `if !strings.ContainsAny(raw, ".eE") && raw != "-0" {`, new: "if true {",
	},
	{
		name: "body-number-large", breaks: "integers above 2^53 are rounded", in: "body.number", suites: bodies,
		old: "		if _, err := strconv.ParseInt(raw, 10, 64); err == nil {", new: "		if _, err := strconv.ParseInt(raw, 10, 50); err == nil {",
	},
}
