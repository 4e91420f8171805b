// The state of the instance, and a card with a graph for each zone, or a table of many.
const mostCards = 24, rowsAtFirst = 200;
let rows = rowsAtFirst;
const shown = new Map(); // name → card
let problem = null; // why the last question was not answered

function chip(kind, title, ...rest) {
	return el("li", { className: `chip ${kind}` }, el("b", { textContent: title }), rest.length ? " " : "", ...rest.map((r) => typeof r === "string" ? el("span", { textContent: r }) : r));
}

// costOf says what a store cost since the message before.
function costOf(s) {
	const was = state.before && state.before.stores.find((o) => o.name === s.name);
	const seconds = was ? (Date.parse(state.live.now) - Date.parse(state.before.now)) / 1000 : 0;
	const calls = was ? s.calls - was.calls : 0;
	if (seconds <= 0 || calls < 0) return "";
	if (!calls) return "no calls now";
	return `${compact(calls / seconds)} calls/s, ${((s.checks - was.checks) / calls).toFixed(1)} checks each, ${micro((s.call_seconds - was.call_seconds) / calls)} a call`;
}

function instance(m) {
	const i = m.instance, known = m.stores.map((s) => s.instances).filter(Boolean);
	const many = known.length ? Math.max(...known) > 1 ? `one of ${Math.max(...known)} instances` : "the only instance" : m.stores.length ? instancesOf(m.stores[0]) : "limits of this instance only";
	$("host").textContent = plain([i.host, ...(i.listen || []).slice(0, 1)].join(" "));
	$("instance").textContent = [plain(i.host), ...(i.listen || []).map(plain), `Caddy ${i.caddy}`, `Diana ${i.diana}`, `configuration ${i.config} since ${since(i.since, m.now)}`, many].join(" · ");
	$("instance").title = "Instances with equal rate limits in their configuration show the same configuration.";
	document.title = `Rate limits · ${plain(i.host)}`;
}

const lamp = (kind) => el("i", { className: `lamp ${kind}`, "aria-hidden": "true" });

// healthLine says in a line how this instance is; what opens below it says why.
function healthLine(m) {
	const away = m.stores.filter((s) => !s.up), list = away.map((s) => `${plain(s.name)} away for ${since(s.since, m.now)}`);
	if (m.rules?.error) list.push(`rules from ${plain(m.rules.source)} ${m.rules.lost ? "lost" : "not in order"}`);
	const kind = list.length ? "bad" : m.rules?.unknown_zones ? "warn" : "good";
	if (m.rules?.unknown_zones) list.push("rules name unknown zones");
	const up = m.stores.filter((s) => s.up).map((s) => `${plain(s.name)} shared`), fine = [...up, ...m.stores.length ? [] : ["counted in this process"], ...m.rules && !m.rules.error ? [`rules from ${plain(m.rules.source)}`] : []];
	$("health-line").replaceChildren(lamp(kind), el("b", { textContent: kind === "good" ? "All well" : list.join(", ") }), ` ${fine.join(" · ")}`);
}

// stale says that what is shown is not known any more.
function stale(since) {
	document.body.classList.add("stale");
	$("health-line").replaceChildren(lamp(""), el("b", { textContent: "Not known now" }), `: what is below is of ${since}`);
	if (!$("fleet").hidden) $("fleet-line").replaceChildren(lamp(""), "Instances: not known now");
}

function health(m) {
	document.body.classList.remove("stale");
	healthLine(m);
	const list = [];
	if (!m.stores.length) list.push(chip("good", "counted in this process"));
	for (const s of m.stores) {
		const nodes = (s.nodes_down || []).map((n) => plain(n.address)).join(", ");
		if (s.up) list.push(chip("good", plain(s.name), `shared for ${since(s.since, m.now)}, ${instancesOf(s)}`));
		else list.push(chip("bad", plain(s.name), `away for ${since(s.since, m.now)}${nodes ? ` (node ${nodes})` : ""}, on_failure ${s.on_failure}, ${instancesOf(s)}`));
		const cost = costOf(s);
		if (cost) list.push(chip("", `${plain(s.name)}:`, cost));
	}
	if (m.rules) {
		const r = m.rules, age = r.state === "empty" ? "no document yet" : r.confirmed ? `confirmed ${since(r.confirmed, m.now)} ago` : "never read";
		list.push(chip(r.error ? "bad" : "good", `rules from ${plain(r.source)}`, r.error ? `${age}, ${r.lost ? "document lost" : { rejected: "rejected", away: "away" }[r.state] || "failing"}` : age));
		if (r.unknown_zones) list.push(chip("warn", "zones unknown here:", r.unknown_zones.map(plain).join(", ")));
	}
	for (const t of m.decision_seconds) {
		const was = state.before && state.before.decision_seconds.find((o) => o.store === t.store);
		const n = was ? t.count - was.count : 0;
		list.push(chip("", `decisions ${plain(t.store)}`, `${n > 0 ? `${micro((t.sum - was.sum) / n)} now, ` : ""}99 % under ${micro(t.p99)}`));
	}
	$("health").replaceChildren(...list);
}

// outageText says what is enforced while a store is away.
function outageText(s) {
	const part = s.nodes_down?.length ? "Keys on the nodes that are away are" : "Requests are";
	switch (s.on_failure) {
	case "allow": return `${part} let through uncounted.`;
	case "deny": return `${part} answered 503.`;
	}
	const example = [...zones.values()].map((e) => e.status).find((z) => z.store === s.name && z.rules.some((r) => r.enforced));
	const share = s.share && s.share < 1 ? `${(s.share * 100).toFixed(0)} % of each limit` : "each limit in full";
	return `${part} decided locally, by ${share}${example ? `: zone ${example.name} has ${enforcedOf(example).join("; ")}` : ""}.`;
}

const sentence = (text) => text.replace(/^./, (c) => c.toUpperCase());

// troubleOf says what is wrong with the source of rules, restOf what it means. The error of a
// lost document says both.
function troubleOf(r) {
	if (r.lost) return `${sentence(plain(r.error).split(": ", 1)[0])}.`;
	return { rejected: "The remote rules are rejected.", away: "The remote rules cannot be read." }[r.state] || "The remote rules have an error.";
}

function restOf(r) {
	const text = plain(r.error);
	if (r.lost) return sentence(text.slice(text.indexOf(": ") + 2));
	return `${r.since ? "The rules before them stay in force." : "The configured rules are in force."} The error: ${text}`;
}

function banners(m) {
	const list = m.stores.filter((s) => !s.up).map((s) => el("p", { className: "banner bad" },
		el("strong", { textContent: `${plain(s.name)} has been away for ${since(s.since, m.now)}.` }), outageText(s), " Caddy's log says why; ", el("code", { textContent: "caddy rate-limit zones" }), " shows the same."));
	if (m.rules?.error) list.push(el("p", { className: "banner" }, el("strong", { textContent: troubleOf(m.rules) }), restOf(m.rules)));
	const all = [...zones.values()].map((e) => e.status), who = "The remote rules say so of all zones.";
	const held = all.reduce((n, z) => n + exceptionsOf(z).length, 0);
	put($("open-exceptions"), plural(held, "exception"));
	$("open-exceptions").hidden = !held;
	if (all.length && all.every((z) => !z.enabled)) list.push(el("p", { className: "banner" }, el("strong", { textContent: "All zones are off: every request passes uncounted." }), who));
	else if (all.length > 1 && all.every((z) => z.shadow && z.origin !== "config")) list.push(el("p", { className: "banner" }, el("strong", { textContent: "All zones are in shadow: no request is denied." }), who));
	$("open-every").hidden = !writable();
	$("banners").replaceChildren(...list);
}

let said = "";

// announce tells screen readers what changed, and nothing of what only counts on.
function announce(m) {
	const text = m.stores.map((s) => s.up ? `${s.name} is shared.` : `${s.name} is away. ${outageText(s)}`).concat(m.rules?.error ? [troubleOf(m.rules)] : []).join(" ");
	if (said && said !== text) $("announce").textContent = text;
	said = text;
}

// totals shows what became of requests, each counted once, and apart from it what zones in
// shadow would have done.
function totals() {
	const over = link.to ? scope().title : `in ${scope().title}`, s = requests.sums, none = collecting() && "collecting from all instances";
	const box = (kind, title, value, more) => el("div", { className: kind }, el("dt", { textContent: title }), el("dd", {}, value, el("small", { textContent: more })));
	const one = (kind, title, curve) => box(kind, title, `${nowText(requests, curve)}/s`, none || `${whole(s[curve])} ${over}`);
	const sum = (kind, title, curve, more) => box(kind, title, current() ? `${compact([...zones.values()].reduce((n, e) => n + now(e, curve), 0))}/s` : "…/s", `${whole(totalOf(curve))} ${over}${more}`);
	const list = [one("allowed", "Requests allowed", "allowed"), one("denied", "Requests denied", "denied")];
	if (s.delayed) list.push(one("delayed", "Requests delayed", "delayed"));
	if (s.left) list.push(one("", "Left while waiting", "left"));
	const all = s.allowed + s.denied;
	list.push(box("", "Share denied", all ? `${(s.denied / all * 100).toFixed(1)} %` : "–", none || (link.to ? over : `of the last ${scope().title}`)));
	if (totalOf("shadow_denied")) list.push(sum("shadow_denied", "Would be denied", "shadow_denied", " by zones in shadow"));
	if (totalOf("fallback")) list.push(sum("fallback", "Decided locally", "fallback", ", by zones"));
	list.push(box("zones", "Zones", whole(zones.size), none || `${[...zones.values()].filter((e) => e.sums.denied > 0).length} with denials`));
	$("totals").replaceChildren(...list);
}

function legend() {
	const dot = (kind, text) => el("span", {}, el("i", { className: `dot ${kind}` }), text), all = [...zones.values()];
	$("legend").replaceChildren(dot("allowed", "allowed"), dot("denied", "denied"), ...(all.some((e) => e.status.shadow || e.sums.shadow_denied) ? [dot("shadow_denied", "would be denied (shadow)")] : []),
		dot("limit", "nearest limit, per second"), ...(inFleet() ? [dot("before", "this instance alone, before all were counted")] : []), ...[...(state.live.stores.length ? [dot("outage", "store away")] : []), ...(state.live.rules ? [dot("event", "rules changed")] : []), dot("load", "configuration loaded")].map((d) => Object.assign(d, { className: "pointer" })), el("span", { className: "pointer", textContent: "Drag in a graph to zoom." }));
}

// matching returns the names of the zones that the filter leaves, in order.
function matching() {
	const part = link.filter.trim().toLowerCase(), sort = $("sort").value;
	const list = [...zones.keys()].filter((n) => n.toLowerCase().includes(part));
	const denials = (n) => zones.get(n).sums.denied + zones.get(n).sums.shadow_denied;
	const by = { name: () => 0, busy: (n) => zones.get(n).sums.allowed + denials(n), denied: denials }[sort];
	return list.sort((a, b) => by(b) - by(a) || (a < b ? -1 : 1));
}

function card(name) {
	const parts = { badges: el("span"), rate: el("p", { className: "rate" }), notes: el("div"), plot: el("div", { className: "plot", role: "img" }) };
	const c = el("article", { className: "zone" }, el("div", { className: "top" }, el("h2", {}, linkTo({ zone: name }, name)), parts.badges, parts.rate), parts.notes, parts.plot);
	c.dataset.zone = name;
	parts.graph = new Graph(parts.plot, (at) => { parts.at = at; rateLine(name, parts); });
	return Object.assign(c, { parts, told: 0 });
}

// rateLine shows the values under the pointer, or the last ones.
function rateLine(name, p) {
	const e = zones.get(name), { i } = scope(), at = p.at;
	if (!e) return;
	const value = (c) => rateAt(e, c, i, at).replace("/s", "");
	const would = e.status.shadow && !e.status.disable_metrics;
	p.rate.replaceChildren(at === null || at === undefined ? "" : `${clock(ends(i)[at])}  `, el("b", { title: "allowed", textContent: value("allowed") }), "/s  ", el("em", { className: would ? "would" : "", title: would ? titles.shadow_denied : "denied", textContent: value(would ? "shadow_denied" : "denied") }), "/s");
}

const badgesOf = (z) => [z.enabled ? "" : "off", z.shadow ? "shadow" : "", z.origin !== "config" ? `rules from ${z.origin}` : "", z.blocked ? `${plural(z.blocked, "key")} blocked` : "", exceptionsOf(z).length ? plural(exceptionsOf(z).length, "exception") : ""].filter(Boolean).map((b) => el("span", { className: "badge", textContent: b }));

// cardNotes are the lines of a card between its head and its graph, each a text and its class; an
// empty text has no line.
const cardNotes = [
	({ status: z }) => { const now = enforcedOf(z); return now.length ? [`now ${now.join("; ")}`, "fallback"] : [rulesOf(z).join(", ") || "no rules"]; },
	(e) => [sumsOf(e)],
	(e) => [costOfZone(e)],
];

// costOfZone says what the requests of a zone cost by their responses.
function costOfZone(e) {
	if (!e.status.unit || e.status.disable_metrics || collecting()) return "";
	return `${whole(e.sums.cost)} ${e.status.unit} ${link.to ? "then" : `in ${scope().title}`}, ${nowText(e, "cost")}/s now`;
}

function sumsOf(e) {
	const s = e.sums, list = [`${scope().title}: ${whole(s.allowed)} allowed`];
	if (s.denied || !e.status.shadow) list.push(`${whole(s.denied)} denied`);
	if (e.status.shadow && !s.shadow_denied) list.push("none would be denied");
	for (const c of outcomes.slice(2)) if (s[c]) list.push(`${whole(s[c])} ${titles[c]}`);
	if (e.status.disable_metrics) return "not counted: the handler has disable_metrics";
	if (collecting()) return "collecting what all instances count…";
	if (!outcomes.some((c) => s[c])) return link.to ? "no requests then" : `no requests in the last ${scope().title}`;
	return list.join(", ");
}

function fill(c, name) {
	const e = zones.get(name), z = e.status, p = c.parts;
	p.badges.replaceChildren(...badgesOf(z));
	rateLine(name, p);
	p.notes.replaceChildren(...cardNotes.map((of) => of(e)).filter(([text]) => text).map(([text, kind]) => el("p", { className: `sub ${kind || ""}`, textContent: text })));
	c.classList.toggle("fallback", Boolean(awayOf(z)));
	if (Date.now() - c.told > 10000) { // what changes all the time is no use to who listens
		p.plot.setAttribute("aria-label", inWords(e));
		c.told = Date.now();
	}
	p.graph.draw(e, false);
}

function drop(name) {
	const c = shown.get(name);
	c.parts.graph.drop();
	c.remove();
	shown.delete(name);
}

// settle shows one of the states: loading, empty, lost (there was no answer yet) or live. Only
// the last has zones to choose from, and more of them to show.
function settle(name) {
	document.body.dataset.state = name;
	for (const id of ["totals", "find", "legend"]) $(id).hidden = name !== "live";
	if (name !== "live") $("more").hidden = true;
}

const sample = () => el("pre", { textContent: "example.com {\n\trate_limit {client_ip} 10/s\n}", tabIndex: 0 });

// emptyText says what to do where there is nothing to show.
function emptyText() {
	if (zones.size) return [el("p", {}, "No zone has “", visible(link.filter.trim()), "” in its name."), el("p", {}, button("Show all zones", () => go({ filter: "" })), " ", button(`Look for “${plain(link.filter.trim())}” as a key`, searchKey))];
	return [el("h2", { textContent: "No rate limits yet" }), el("p", { textContent: "This configuration has no zones. A limit for a whole site is one line in it:" }), sample(), el("p", {}, "Load it with ", el("code", { textContent: "caddy reload" }), ": this page then shows it by itself.")];
}

// showNothing replaces all zones by a text.
function showNothing(...text) {
	for (const name of [...shown.keys()]) drop(name);
	dropTable();
	$("more").hidden = true;
	$("zones").replaceChildren(el("div", { className: "empty" }, ...text));
}

// redraw shows the zones that the filter leaves: a few as cards, many as a table.
function redraw() {
	const names = matching(), box = $("zones");
	settle(zones.size ? "live" : problem ? "lost" : "empty");
	$("shown").textContent = names.length > mostCards && names.length > rows ? `${rows} of ${plural(names.length, "zone")}` : plural(names.length, "zone");
	$("more").hidden = names.length <= mostCards || names.length <= rows;
	if (!names.length) return showNothing(...(problem && !zones.size ? lostText(problem) : emptyText()));
	box.querySelector(".empty")?.remove();
	$("legend").hidden = names.length > mostCards;
	if (names.length > mostCards) {
		for (const name of [...shown.keys()]) drop(name);
		return drawTable(names.slice(0, rows));
	}
	dropTable();
	box.className = names.length < 3 ? "few" : names.length === 4 ? "pairs" : "";
	for (const name of [...shown.keys()]) if (!names.includes(name)) drop(name);
	names.forEach((name, i) => {
		let c = shown.get(name);
		if (!c) shown.set(name, c = card(name));
		const held = c.contains(document.activeElement); // moving it would take the focus away
		if (box.children[i] !== c && !held) box.insertBefore(c, box.children[i] || null);
		fill(c, name);
	});
}
