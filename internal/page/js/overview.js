// The state of the instance, and a card with a graph for each zone.
const cardsAtFirst = 24;
let cards = cardsAtFirst;
const shown = new Map(); // name → card

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
	$("instance").textContent = [plain(i.host), `Caddy ${i.caddy}`, `Diana ${i.diana}`, `configuration ${i.config} since ${since(i.since, m.now)}`, many].join(" · ");
	$("instance").title = "Instances with equal rate limits in their configuration show the same configuration.";
	document.title = `Rate limits · ${plain(i.host)}`;
}

function health(m) {
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

function totals() {
	const box = (kind, title, value, more) => el("div", { className: kind }, el("dt", { textContent: title }), el("dd", {}, value, el("small", { textContent: more })));
	const one = (kind, title, rate, sum, more = "") => box(kind, title, `${compact(rate)}/s`, `${whole(sum)} in 5 min${more}`);
	const once = (title, curve) => one(curve, title, now(requests, curve), requests.sums[curve]); // each request once
	const list = [once("Allowed", "allowed"), once("Denied", "denied")], sums = requests.sums;
	if (sums.delayed) list.push(once("Delayed", "delayed"));
	if (totalOf("shadow_denied")) list.push(one("shadow_denied", "Would be denied", total("shadow_denied"), totalOf("shadow_denied"), ", by zones in shadow"));
	if (totalOf("fallback")) list.push(one("fallback", "Decided locally", total("fallback"), totalOf("fallback")));
	const all = sums.allowed + sums.denied;
	list.push(box("", "Share denied", all ? `${(sums.denied / all * 100).toFixed(1)} %` : "–", "of the last 5 min"));
	list.push(box("", "Zones", String(zones.size), `${[...zones.values()].filter((e) => e.sums.denied > 0).length} with denials`));
	$("totals").replaceChildren(...list);
}

function legend() {
	const dot = (kind, text) => el("span", {}, el("i", { className: `dot ${kind}` }), text);
	$("legend").replaceChildren(dot("allowed", "allowed"), dot("denied", "denied"), dot("shadow_denied", "would be denied (shadow)"), dot("outage", "store away"), dot("event", "rules changed"), dot("load", "configuration loaded"));
}

// wanted returns the names of the zones to show, in order.
function wanted() {
	const part = $("filter").value.trim().toLowerCase(), sort = $("sort").value;
	const list = [...zones.keys()].filter((n) => n.toLowerCase().includes(part));
	const by = { name: () => 0, busy: (n) => zones.get(n).sums.allowed + zones.get(n).sums.denied, denied: (n) => zones.get(n).sums.denied }[sort];
	list.sort((a, b) => by(b) - by(a) || (a < b ? -1 : 1));
	const few = list.slice(0, cards);
	$("shown").textContent = list.length > few.length ? `${few.length} of ${plural(list.length, "zone")}` : plural(list.length, "zone");
	$("more").hidden = list.length <= few.length;
	return few;
}

function card(name) {
	const parts = { badges: el("span"), rate: el("p", { className: "rate" }), rules: el("p", { className: "sub" }), sums: el("p", { className: "sub" }), plot: el("div", { className: "plot", role: "img" }) };
	const open = el("button", { type: "button", textContent: name });
	open.addEventListener("click", () => showZone(name));
	const c = el("article", { className: "zone" }, el("div", { className: "top" }, el("h2", {}, open), parts.badges, parts.rate), parts.rules, parts.sums, parts.plot);
	c.dataset.zone = name;
	parts.graph = new Graph(parts.plot, 120, (at) => { parts.at = at; rateLine(name, parts); });
	return Object.assign(c, { parts, told: 0 });
}

// rateLine shows the values under the pointer, or the last ones.
function rateLine(name, p) {
	const e = zones.get(name), at = p.at ?? kept - 1;
	if (!e) return;
	const value = (c) => rateAt(e, c, at).replace("/s", "");
	p.rate.replaceChildren(p.at === null || p.at === undefined ? "" : `${clock((state.head + 2 - kept + at) * state.step)}  `, el("b", { textContent: value("allowed") }), "/s  ", el("em", { textContent: value("denied") }), "/s", ...(isSeen(e, "shadow_denied") ? ["  ", el("i", { className: "would", textContent: value("shadow_denied") }), "/s"] : []));
}

const badgesOf = (z) => [z.enabled ? "" : "off", z.shadow ? "shadow" : "", z.origin !== "config" ? `rules from ${z.origin}` : "", z.blocked ? `${plural(z.blocked, "key")} blocked` : ""].filter(Boolean).map((b) => el("span", { className: "badge", textContent: b }));

function sumsOf(e) {
	const s = e.sums, list = [`5 min: ${whole(s.allowed)} allowed`, `${whole(s.denied)} denied`];
	for (const c of ["shadow_denied", "delayed", "denied_elsewhere", "skipped", "fallback"]) if (s[c]) list.push(`${whole(s[c])} ${titles[c]}`);
	if (e.status.disable_metrics) return "not counted: the handler has disable_metrics";
	if (!curves.some((c) => s[c])) return "no requests in the last 5 minutes";
	return list.join(", ");
}

function fill(c, name) {
	const e = zones.get(name), z = e.status, p = c.parts, now = enforcedOf(z);
	p.badges.replaceChildren(...badgesOf(z));
	rateLine(name, p);
	p.rules.className = now.length ? "sub fallback" : "sub";
	p.rules.textContent = now.length ? `now ${now.join("; ")}` : rulesOf(z).join(", ") || "no rules";
	c.classList.toggle("fallback", Boolean(awayOf(z)));
	p.sums.textContent = sumsOf(e);
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

function emptyText() {
	const part = $("filter").value.trim();
	if (zones.size && part) return [el("p", {}, "No zone has “", visible(part), "” in its name.")];
	return [el("p", { textContent: "This configuration has no zones. A limit for a whole site is one line in it:" }), el("pre", { textContent: "example.com {\n\trate_limit {client_ip} 10/s\n}", tabIndex: 0 }), el("p", { textContent: "The page follows when the configuration is loaded." })];
}

// redraw shows the cards of the zones that are wanted, in order.
function redraw() {
	const names = wanted(), box = $("zones");
	for (const name of [...shown.keys()]) if (!names.includes(name) || !zones.has(name)) drop(name);
	box.querySelector(".empty")?.remove();
	names.forEach((name, i) => {
		let c = shown.get(name);
		if (!c) shown.set(name, c = card(name));
		const held = c.contains(document.activeElement); // moving it would take the focus away
		if (box.children[i] !== c && !held) box.insertBefore(c, box.children[i] || null);
		fill(c, name);
	});
	if (!names.length) box.append(el("div", { className: "empty" }, ...emptyText()));
}
