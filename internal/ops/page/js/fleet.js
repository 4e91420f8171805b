// All instances that share the first store: who they are, and what they do together. What they count
// comes as sums since each has started, of which the page shows the differences.
const fleetEvery = 10; // seconds between two questions, in which each instance writes its figures twice
const fleet = { on: false, answer: null, before: null, asked: 0, head: 0, since: 0, open: "", top: null, spend: null };

const sharers = () => state.live?.stores[0]?.instances || 0;
const inFleet = () => sharers() > 1 && link.only !== "this";

// chooseFleet forgets the history of what was shown before, when it was another.
function chooseFleet() {
	if (fleet.on === inFleet()) return;
	fleet.on = inFleet();
	ranges.forEach((r, i) => { clear(i); r.ready = false; });
	fine.head = 0;
	Object.assign(fleet, { answer: null, before: null, asked: 0, head: 0, open: "", top: null, spend: null });
	if (!fleet.on) restart(); // with all of its own history
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
	if (was && answering(was) === answering(a)) {
		const before = new Map(was.zones.map((z) => [z.name, z.decisions]));
		h.requests = spread(a.requests, was.requests);
		for (const z of a.zones) if (before.has(z.name)) h.zones[z.name] = spread(z.decisions, before.get(z.name));
	}
	takeHistory(h);
	if (!was) fleet.since = reach();
	Object.assign(fleet, { answer: a, before: was, head: last });
}

// memberRow shows an instance. Its rates are those since the answer before.
function memberRow(m, a, was) {
	const before = was?.fleet.members.find((o) => o.id === m.id && !o.missing), seconds = before ? (Date.parse(a.now) - Date.parse(was.now)) / 1000 : 0;
	const rate = (c) => {
		if (m.missing || !before) return "–";
		const r = Math.max(0, m.requests[c] - before.requests[c]) / seconds;
		return r < 10 ? r.toFixed(1) : compact(r);
	};
	const mode = m.mode === "shared" ? "shared" : `alone (${m.mode})`, lasts = ` for ${since(m.mode_since, a.now)}`;
	const notes = [m.other_config ? "another configuration" : "", m.other_version ? `Caddy ${m.caddy}, Diana ${m.diana}` : ""].filter(Boolean).map((b) => el("span", { className: "badge", textContent: plain(b) }));
	const tr = row(el("th", { scope: "row" }, plain(m.host), m.self ? " (this)" : "", " ", ...notes), cell(el("code", { textContent: m.config })),
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
	const kept = $("only").contains(document.activeElement) ? document.activeElement.textContent : "";
	$("only").replaceChildren(...sharers() > 1 ? [of(`All ${sharers()} instances`, ""), of("This instance", "this")] : []);
	if (kept) [...$("only").children].find((c) => c.textContent === kept)?.focus();
	$("fleet").hidden = !inFleet();
	$("keys-of").textContent = `of ${inFleet() ? "all instances" : "this instance"}, in about the last minutes`;
	const a = fleet.answer;
	if (!inFleet() || !a) return;
	const f = a.fleet, [own, ...others] = f.members, list = [own, ...others.sort((x, y) => x.host.localeCompare(y.host, "en", { numeric: true }))], foreign = a.zones.filter((z) => z.origin === "another instance").map((z) => plain(z.name));
	$("fleet-note").textContent = [`${f.answered} of ${plural(f.instances, "instance")}${f.answered < f.instances ? ": the others are in no sum" : ""}.`, f.alone ? `This instance sees only itself: ${plain(f.why)}.` : "",
		f.silent ? `Nothing is known of ${f.silent} more.` : "", foreign.length ? `Only others have the zones ${foreign.slice(0, 20).join(", ")}.` : "", `Counted since ${clock(fleet.since)}.`].filter(Boolean).join(" ");
	$("fleet-note").className = f.answered < f.instances ? "out" : "hint";
	$("members").replaceChildren(head("instance", "configuration", "store", "#allowed/s", "#denied/s"), el("tbody", {}, ...list.map((m) => memberRow(m, a, fleet.before))));
}
