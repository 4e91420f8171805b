// What the page knows: the zones, their history, and the state of the instance.
const kept = 150; // steps of the history, as the API keeps them
const curves = ["allowed", "denied", "shadow_denied", "delayed", "denied_elsewhere", "skipped", "fallback"];
const zones = new Map(); // name → {status, [curve]: counts by step, sums: {curve: count}}
const state = { step: 2, head: 0, version: "", live: null, before: null, open: "" };

const zeros = () => new Array(kept).fill(0);

function newZone(status) {
	const e = { status, sums: {} };
	for (const c of curves) e[c] = zeros();
	return e;
}

const requests = newZone(null); // each counted once, however many zones it met

// take adds a message to what is known.
function take(m) {
	for (const name of m.gone || []) zones.delete(name);
	for (const z of m.zones || []) {
		const e = zones.get(z.name);
		if (e) e.status = z;
		else zones.set(z.name, newZone(z));
	}
	state.version = m.version;
	takeHistory(m.history);
	state.before = state.live;
	state.live = m;
}

function takeHistory(h) {
	const again = h.last < state.head; // the clock was set back: what is known is no longer where it was
	const steps = again || !state.head ? kept : Math.min(kept, h.last - state.head);
	state.step = h.step;
	state.head = h.last;
	const all = [[requests, h.requests], ...[...zones].map(([name, e]) => [e, h.zones[name]])];
	for (const [e, got] of all) {
		for (const c of curves) {
			const list = e[c];
			if (steps > 0) {
				list.splice(0, steps);
				for (let i = 0; i < steps; i++) list.push(0);
			}
			const values = got && got[c] || [];
			for (let i = Math.max(0, values.length - kept); i < values.length; i++) list[kept - values.length + i] = values[i];
			e.sums[c] = list.reduce((a, b) => a + b, 0);
		}
	}
}

const now = (e, curve) => e[curve][kept - 1] / state.step; // per second
const ends = () => Array.from({ length: kept }, (_, i) => (state.head + 2 - kept + i) * state.step); // when each step ended

// counting is the first step in which the process was there to count.
const counting = () => Math.floor(Date.parse(state.live.instance.started) / 1000 / state.step) - state.head + kept - 1;

// perSecond returns a curve as rates; null before the process started.
function perSecond(list) {
	const from = counting();
	return list.map((n, i) => i < from ? null : n / state.step);
}

// rateAt is the rate of a curve in a step, as text.
const rateAt = (e, curve, i) => i < counting() ? "–" : `${compact(e[curve][i] / state.step)}/s`;
const storeOf = (z) => (state.live ? state.live.stores : []).find((s) => s.name === z.store);
const awayOf = (z) => { const s = storeOf(z); return s && !s.up ? s : null; };

// instancesOf says how many instances share a store, or why nobody knows.
function instancesOf(s) {
	if (s.instances) return `${plural(s.instances, "instance")}${s.up ? "" : " when it was last reached"}`;
	return s.up ? "instances not counted yet" : "number of instances unknown";
}

// total sums a curve over all zones, in the last step, per second.
const total = (curve) => [...zones.values()].reduce((sum, e) => sum + now(e, curve), 0);
const totalOf = (curve) => [...zones.values()].reduce((sum, e) => sum + e.sums[curve], 0);

// alike returns the zones that count by the same key as a zone.
function alike(name) {
	const same = (z) => JSON.stringify([z.key, z.ipv4_prefix, z.ipv6_prefix, z.store]);
	const own = zones.get(name);
	if (!own) return [];
	return [...zones.values()].map((e) => e.status).filter((z) => same(z) === same(own.status)).map((z) => z.name).sort();
}
