// What the page knows: the zones, their history, and the state of the instance.

// ranges are those of the history, as the API keeps them. head is the last step that has
// ended, from the first step of the first range that is added to what was read.
const ranges = [["5m", "5 min", 300, 2], ["1h", "1 h", 3600, 10], ["24h", "24 h", 86400, 120]]
	.map(([name, title, lasts, step]) => ({ name, title, lasts, step, per: step / 2, kept: lasts / step, head: 0, from: 0, ready: false, asked: 0 }));
const fine = ranges[0];
const outcomes = ["allowed", "denied", "shadow_denied", "delayed", "shadow_delayed", "denied_elsewhere", "left", "skipped", "fallback"];
const curves = [...outcomes, "cost"]; // which is no number of requests
const placesCurve = (name) => `places: ${name}`, waitingFor = (priority) => `waiting ${priority}`;
const zones = new Map(); // name → {status, counts: [{curve: counts by step}] by range, sums: {curve: count}}
const state = { version: "", live: null, before: null, open: "", marks: [] };

// counts by step end with one of the step that has not ended.
const zeros = ranges.map((r) => new Float64Array(r.kept + 1));
const countsOf = (e, i, curve) => e.counts[i][curve] || zeros[i];
const counted = (e, i, curve) => e.counts[i][curve] ||= new Float64Array(ranges[i].kept + 1);
const clear = (i) => { for (const e of everything()) e.counts[i] = {}; };
const everything = () => [requests, ...zones.values()];

const newZone = (status) => ({ status, counts: ranges.map(() => ({})), sums: {}, own: {} });
const requests = newZone(null); // each counted once, however many zones it met

// take adds a message to what is known.
function take(m) {
	if (m.zones) {
		const before = new Map(zones);
		zones.clear();
		for (const z of m.zones) zones.set(z.name, Object.assign(before.get(z.name) || newZone(z), { status: z }));
	}
	const blocked = new Map(Object.entries(m.blocked || {}));
	for (const [name, e] of zones) e.status.blocked = blocked.get(name);
	state.version = m.version;
	state.before = state.live;
	state.live = m;
	chooseFleet(!state.before);
	if (inFleet()) takeOwn(m.history);
	else takeHistory(m.history);
	const known = new Set(state.marks.map((k) => JSON.stringify(k)));
	state.marks.push(...m.marks.filter((k) => !known.has(JSON.stringify(k))));
	sumUp();
}

// shift moves a range to another last step.
function shift(i, head) {
	const n = head - ranges[i].head;
	ranges[i].head = head;
	for (const e of everything()) {
		for (const list of Object.values(e.counts[i])) {
			list.copyWithin(0, n);
			list.fill(0, Math.max(0, list.length - n));
		}
	}
}

// addSteps adds steps of the first range, up to its step last, to the range i.
function addSteps(i, e, curve, values, last) {
	const r = ranges[i];
	for (let k = 0; k < values.length; k++) {
		const step = last - values.length + 1 + k, at = Math.floor(step / r.per) - r.head + r.kept - 1;
		if (values[k] && step >= r.from && at >= 0 && at <= r.kept) counted(e, i, curve)[at] += values[k];
	}
}

// historyIn calls f for each curve in an answer, whose steps are so many of the first range. Curves of places are
// sums over these, beside the number of them: so they add up as counts do.
function historyIn(h, f, per = 1) {
	const list = [[requests, h.requests], ...[...zones].map(([name, e]) => [e, h.zones[name]])];
	for (const [e, got] of list) {
		for (const c of curves) if (got?.[c]) f(e, c, got[c]);
		const p = got?.places, of = (name, values) => f(e, placesCurve(name), values.map((n) => n * per));
		if (!p) continue;
		of("samples", p.limit.map(() => 1));
		of("limit", p.limit);
		of("in flight", p.in_flight);
		for (const [name, values] of Object.entries(p.waiting)) of(waitingFor(name), values);
	}
}

function takeHistory(h) {
	const steps = h.last - fine.head, lost = steps < 0 || steps > fine.kept; // the clock was set back, or the page was hidden
	ranges.forEach((r, i) => {
		if (lost) {
			clear(i);
			r.ready = i === 0;
			r.head = Math.floor((h.last + 1) / r.per) - 1;
			r.from = 0;
		} else if (r.ready) shift(i, Math.max(r.head, Math.floor((h.last + 1) / r.per) - 1));
	});
	historyIn(h, (e, c, values) => ranges.forEach((r, i) => { if (r.ready) addSteps(i, e, c, values, h.last); }));
}

// takeRange adds the answer about a range, and the steps that ended since it did.
function takeRange(i, h) {
	const r = ranges[i], begin = (h.last + 1) * r.per;
	clear(i);
	Object.assign(r, { head: h.last, from: begin, ready: true });
	historyIn(h, (e, c, values) => counted(e, i, c).set(values.slice(-r.kept), Math.max(0, r.kept - values.length)), r.per);
	shift(i, Math.max(h.last, Math.floor((fine.head + 1) / r.per) - 1));
	for (const e of everything()) for (const [c, list] of Object.entries(e.counts[0])) addSteps(i, e, c, list.subarray(0, fine.kept), fine.head);
}

// reach is the time to which the history goes, in seconds.
const reach = () => (fine.head + 1) * fine.step;

// scope returns what is shown: from and to in seconds, and the range that has it in the
// shortest steps.
function scope() {
	const chosen = inFleet() ? 0 : Math.max(0, ranges.findIndex((r) => r.name === link.range)), end = reach();
	if (!link.to) return { i: chosen, from: end - ranges[chosen].lasts, to: end, title: inFleet() ? span(Math.min(fine.lasts, Math.max(fine.step, end - fleet.since))) : ranges[chosen].title };
	const i = inFleet() ? 0 : ranges.findIndex((r) => link.from >= end - r.lasts - r.step);
	return { i: i < 0 ? ranges.length - 1 : i, from: link.from, to: link.to, title: `${clock(link.from)} to ${clock(link.to)}` };
}

// loadRange reads the history of the range that is shown, once.
async function loadRange() {
	const { i } = scope(), r = ranges[i];
	if (!state.live || inFleet() || r.ready || Date.now() - r.asked < 15000) return;
	r.asked = Date.now();
	try {
		takeRange(i, await ask(`history?range=${r.name}`));
		r.asked = 0;
		sumUp();
		drawAll();
	} catch (e) {
		$("state").className = "bad";
		$("state").textContent = `The last ${r.title} cannot be shown. ${e.message} Trying again.`;
	}
}

// sumUp sums what is shown.
function sumUp() {
	const { i, from, to } = scope(), r = ranges[i], first = r.head - r.kept + 1;
	const begin = Math.max(0, Math.ceil(from / r.step) - first), end = Math.min(r.kept + 1, Math.ceil(to / r.step) - first);
	for (const e of everything()) {
		e.sums = {};
		for (const c of curves) {
			let sum = 0;
			const list = countsOf(e, i, c);
			for (let k = begin; k < end; k++) sum += list[k];
			e.sums[c] = sum;
		}
	}
}

const now = (e, curve) => countsOf(e, 0, curve)[fine.kept - 1] / fine.step; // per second

// nowText is the present rate of a curve; while nobody knows that of all instances, dots.
const nowText = (e, curve) => current() ? compact(now(e, curve)) : "…";

// ends returns when each step of a range ended; the last has not.
function ends(i) {
	const r = ranges[i], list = Array.from({ length: r.kept }, (_, k) => (r.head - r.kept + 2 + k) * r.step);
	return i === 0 ? list : [...list, reach()];
}

// stepAt is the place of an instant among the steps of a range.
const stepAt = (i, seconds) => Math.floor(seconds / ranges[i].step) - ranges[i].head + ranges[i].kept - 1;

// perSecond returns a curve of a range as rates: null before the process started, and in a last
// step that has just begun.
function perSecond(e, i, curve) {
	const r = ranges[i], list = countsOf(e, i, curve), from = stepAt(i, inFleet() ? fleet.since : Date.parse(state.live.instance.started) / 1000);
	const rates = Array.from({ length: r.kept }, (_, k) => k < from || inFleet() && uncounted(r.head - r.kept + 1 + k) ? null : list[k] / r.step);
	const begun = reach() - (r.head + 1) * r.step;
	return i === 0 ? rates : [...rates, begun < r.step / 4 ? null : list[r.kept] / begun];
}

// rateAt is the rate of a curve in a step of a range, as text; without a step, that of now.
function rateAt(e, curve, i, k) {
	if (k === null || k === undefined) return `${nowText(e, curve)}/s`;
	const rate = perSecond(e, i, curve)[k];
	return rate === null || rate === undefined ? "–" : `${compact(rate)}/s`;
}

const storeOf = (z) => (state.live ? state.live.stores : []).find((s) => s.name === z.store);
const awayOf = (z) => { const s = storeOf(z); return s && !s.up ? s : null; };

// instancesOf says how many instances share a store, or why nobody knows.
function instancesOf(s) {
	if (s.instances) return `${plural(s.instances, "instance")}${s.up ? "" : " when it was last reached"}`;
	return s.up ? "instances not counted yet" : "number of instances unknown";
}

// nearestLimit returns the rule in force that admits the fewest requests a second in the long
// run, with that rate; null: there is none that can be drawn in a graph of requests.
function nearestLimit(z) {
	const away = awayOf(z);
	if (z.unit || !z.enabled || away && away.on_failure !== "local") return null;
	const list = z.rules.filter((r) => !r.limit_from).map((r) => ({ rule: r, rate: (r.enforced || r.limit) / r.window }));
	return list.sort((a, b) => a.rate - b.rate)[0] || null;
}

// perKey says whose limit it is.
const perKey = (z) => z.key.some((k) => k.includes("{")) ? " a key" : "";

// ofAll says what the curves beside the limit of a key are.
const ofAll = (z) => perKey(z) ? "; curves: all keys" : "";

// limitText says what the line of a limit is, in the unit of the graph.
function limitText(z, { rule, rate }) {
	const own = `limit ${rule.enforced || rule.limit}/${spanOf(rule)}${perKey(z)}`;
	return rule.window === 1 ? own : `${own} = ${compact(rate)}/s`;
}

// totalOf sums a curve over all zones.
const totalOf = (curve) => [...zones.values()].reduce((sum, e) => sum + e.sums[curve], 0);

// alike returns the zones that count by the same key as a zone.
function alike(name) {
	const same = (z) => JSON.stringify([z.key, z.ipv4_prefix, z.ipv6_prefix, z.store]);
	const own = zones.get(name);
	if (!own) return [];
	return [...zones.values()].map((e) => e.status).filter((z) => same(z) === same(own.status)).map((z) => z.name).sort();
}
