// All instances that share the first store: who they are, and what they do together. What they count
// comes as sums since each has started, of which the page shows the differences.
const fleetEvery = 10; // seconds between two questions, in which each instance writes its figures twice
const fleet = { on: false, answer: null, before: null, asked: 0, head: 0, since: Infinity, gaps: [], counted: false, current: false, open: "", top: null, spend: null };

// own is the history of this instance while all are shown: it is drawn lightly where theirs is not
// known yet.
const own = { head: 0 };
const ownCurves = ["allowed", "denied"];

const sharers = () => state.live?.stores[0]?.instances || 0;
const inFleet = () => sharers() > 1 && link.only !== "this";

// chooseFleet forgets the history of what was shown before, when it was another. first says that it
// is called for a first message.
function chooseFleet(first) {
	if (fleet.on === inFleet()) return;
	fleet.on = inFleet();
	ranges.forEach((r, i) => { clear(i); r.ready = false; });
	fine.head = 0;
	Object.assign(fleet, { answer: null, before: null, asked: 0, head: 0, since: Infinity, gaps: [], counted: false, current: false, open: "", top: null, spend: null });
	own.head = 0;
	if (!first) restart(); // with all of this instance's history, which a first message brings anyway
}

// collecting says whether nothing is known yet of what all instances count.
const collecting = () => inFleet() && !fleet.counted;

// current says whether the present rates are known.
const current = () => !inFleet() || fleet.current;

// uncounted says whether what all instances did in a step is unknown, because others answered then.
const uncounted = (step) => fleet.gaps.some(([from, to]) => step > from && step <= to);

// takeOwn adds the history of this instance, up to the last step.
function takeOwn(h) {
	const n = h.last - own.head;
	if (!fine.head) takeHistory({ last: h.last, zones: {} }); // until all answer, time goes by this instance
	for (const e of zones.values()) {
		for (const c of ownCurves) e.own[c] ||= new Float64Array(fine.kept);
		for (const list of Object.values(e.own)) {
			if (n < 0 || n >= fine.kept) list.fill(0);
			else list.copyWithin(0, n).fill(0, fine.kept - n);
		}
	}
	historyIn(h, (e, c, values) => {
		if (e === requests || !ownCurves.includes(c) && !c.startsWith(placesCurve(""))) return;
		const list = e.own[c] ||= new Float64Array(fine.kept);
		for (let k = 1; k <= Math.min(values.length, fine.kept); k++) list[fine.kept - k] = values[values.length - k];
	});
	own.head = h.last;
}

// ownBefore returns a curve of this instance as rates, up to where the counts of all begin.
function ownBefore(e, curve) {
	const until = stepAt(0, fleet.since), from = stepAt(0, Date.parse(state.live.instance.started) / 1000), shift = fine.head - own.head;
	return Array.from({ length: fine.kept }, (_, k) => k < from || k > until ? null : (e.own[curve][k + shift] ?? 0) / fine.step);
}

// askFleet reads what all instances count, and the keys and costs of the zone that is open.
async function askFleet() {
	const due = Date.now() - fleet.asked > (fleetEvery - 1) * 1000, open = zones.has(state.open) && state.open;
	if (!inFleet() || !due && (!open || open === fleet.open)) return;
	if (due) fleet.asked = Date.now();
	fleet.open = open;
	try {
		const [answer, top, spend] = await Promise.all([due ? ask("zones?fleet") : null, open ? ask(zonePath(open, "top?fleet")) : null, open && state.live.open?.spend ? ask(zonePath(open, "spend?fleet")) : null]);
		if (!inFleet()) return;
		Object.assign(fleet, { top, spend });
		if (answer) takeFleet(answer);
		sumUp();
		drawAll();
	} catch (e) {
		$("fleet-note").textContent = `What all instances do cannot be shown. ${e.message}`;
	}
}

const answering = (a) => a.fleet.members.filter((m) => !m.missing).map((m) => m.id).sort().join();

// takeFleet adds what was counted since the answer before, unless other instances answer now.
function takeFleet(a) {
	const was = fleet.answer, last = state.live.history.last, steps = last - fleet.head;
	if (was && steps <= 0) return;
	const spread = (now, before) => Object.fromEntries(curves.map((c) => [c, Math.max(0, (now?.[c] || 0) - (before?.[c] || 0))]).filter(([, n]) => n)
		.map(([c, n]) => [c, Array.from({ length: steps }, (_, k) => Math.floor((k + 1) * n / steps) - Math.floor(k * n / steps))]));
	const h = { last, zones: {} };
	const same = Boolean(was) && answering(was) === answering(a), decided = (z) => ({ ...z.decisions, cost: z.settled_cost });
	if (same) {
		const before = new Map(was.zones.map((z) => [z.name, decided(z)]));
		h.requests = spread(a.requests, was.requests);
		for (const z of a.zones) if (before.has(z.name)) h.zones[z.name] = spread(decided(z), before.get(z.name));
	} else if (was) fleet.gaps = [...fleet.gaps, [fleet.head, last]].filter(([, to]) => to > last - fine.kept);
	takeHistory(h);
	if (!was) fleet.since = reach();
	Object.assign(fleet, { answer: a, before: was, head: last, counted: fleet.counted || same, current: same });
}

// nameOf tells an instance from the others: by its host, and those of one host by where they listen.
function nameOf(m, all) {
	const alike = all.filter((o) => o.host === m.host);
	if (alike.length < 2) return plain(m.host);
	const at = (o) => (o.listen || []).map((a) => a.replace(/^tcp\//, "")).join(" ");
	const own = at(m) && alike.filter((o) => at(o) === at(m)).length === 1 ? at(m) : [at(m), m.id.slice(0, 4)].filter(Boolean).join(" ");
	return plain(`${m.host} ${own}`);
}

// memberRow shows an instance. Its rates are those between the figures of the answer before and of this one.
function memberRow(m, a, was) {
	const before = was?.fleet.members.find((o) => o.id === m.id && !o.missing), seconds = before ? (Date.parse(m.seen) - Date.parse(before.seen)) / 1000 : 0;
	const rate = (c) => {
		if (m.missing || !before || seconds <= 0) return "–";
		const r = Math.max(0, m.requests[c] - before.requests[c]) / seconds;
		return r < 10 ? r.toFixed(1) : compact(r);
	};
	const mode = m.mode === "shared" ? "shared" : `alone (${m.mode})`, lasts = ` for ${since(m.mode_since, a.now)}`;
	const notes = [m.other_config ? "another configuration" : "", m.other_version ? `Caddy ${m.caddy}, Diana ${m.diana}` : ""].filter(Boolean).map((b) => el("span", { className: "badge", textContent: plain(b) }));
	const tr = row(el("th", { scope: "row" }, nameOf(m, a.fleet.members), m.self ? " (this)" : "", " ", ...notes), cell(el("code", { textContent: m.config })),
		m.missing ? cell(`missing, last seen ${since(m.seen, a.now)} ago${m.mode === "shared" ? "" : `, ${mode} then`}`) : cell(el("span", {}, mode, el("span", { className: m.mode === "shared" ? "pointer" : "", textContent: lasts }))), cell(rate("allowed"), true), cell(rate("denied"), true));
	if (m.missing || m.mode !== "shared") tr.className = "out";
	return tr;
}

// drawFleet shows what to choose, and the instances if all are chosen.
function drawFleet() {
	const of = (title, only) => {
		const b = button(title, () => go({ only, range: "", from: 0, to: 0 }));
		b.setAttribute("aria-pressed", String(inFleet() === !only));
		return b;
	};
	refill($("only"), [sharers(), inFleet()], () => sharers() > 1 ? [of(`All ${sharers()} instances`, ""), of("This instance", "this")] : []);
	$("fleet").hidden = !inFleet();
	$("keys-of").textContent = `of ${inFleet() ? "all instances" : "this instance"}, in about the last minutes`;
	const a = fleet.answer;
	if (inFleet() && !a) $("fleet-line").replaceChildren(lamp(""), `Asking all ${sharers()} instances…`);
	if (!inFleet() || !a) return;
	fleetLine(a.fleet);
	const f = a.fleet, [own, ...others] = f.members, list = [own, ...others.sort((x, y) => x.host.localeCompare(y.host, "en", { numeric: true }))], foreign = a.zones.filter((z) => z.origin === "another instance").map((z) => plain(z.name));
	$("fleet-note").textContent = [f.answered < f.instances ? `${plural(f.instances - f.answered, "instance is", "instances are")} in no sum.` : "", f.alone ? `This instance sees only itself: ${plain(f.why)}.` : "",
		f.silent ? `Nothing is known of ${f.silent} more.` : "", foreign.length ? `Only others have the zones ${foreign.slice(0, 20).join(", ")}.` : "", `What all do together is counted since ${whenOf(fleet.since)}, when this page began to ask.`].filter(Boolean).join(" ");
	$("fleet-note").className = f.answered < f.instances ? "out" : "hint";
	$("members").replaceChildren(head("instance", "configuration", "store", "#allowed/s", "#denied/s"), el("tbody", {}, ...list.map((m) => memberRow(m, a, fleet.before))));
}

// fleetLine says in a line how all instances are.
function fleetLine(f) {
	const alone = f.members.filter((m) => !m.missing && m.mode !== "shared").length, few = f.answered < f.instances, other = f.members.filter((m) => !m.missing && (m.other_config || m.other_version)).length;
	const text = [`${f.answered} of ${plural(f.instances, "instance")}`, alone ? `${alone} alone` : few ? "those shared" : "all shared", other ? `${other} differ` : "", collecting() ? "collecting their counts…" : ""].filter(Boolean).join(", ");
	$("fleet-line").replaceChildren(lamp(few || alone ? "bad" : other ? "warn" : "good"), text);
}
