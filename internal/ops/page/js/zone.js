// One zone: its graph, its rules and facts, and its keys.
const row = (...cells) => el("tr", {}, ...cells);
const cell = (content, number, tag = "td") => {
	const c = el(tag, { className: number ? "number" : "" }, content);
	if (tag === "th") c.setAttribute("scope", "col");
	return c;
};
const head = (...titles) => el("thead", {}, row(...titles.map((t) => cell(t.replace("#", ""), t.startsWith("#"), "th"))));

const zoneGraph = new Graph($("zone-plot"), (at) => zoneValues(at));
let pointed = null, told = 0;

function zoneValues(at) {
	pointed = at;
	const e = zones.get(state.open), { i, title } = scope();
	if (!e) return;
	const z = e.status;
	const over = link.to ? "in this time" : `in ${title}`, limit = nearestLimit(e.status);
	const list = seriesOf.filter(([c]) => c === "allowed" || c === "denied" || e.sums[c] > 0).map(([c]) => el("span", {}, el("i", { className: `dot ${c}` }), `${titles[c]} `, el("b", { textContent: rateAt(e, c, i, at) }), ` (${collecting() ? "collecting" : whole(e.sums[c])} ${over})`));
	if (costOfZone(e)) list.push(el("span", { textContent: costOfZone(e) }));
	if (limit) list.push(el("span", { title: "The rule in force that admits the fewest requests per second in the long run." }, el("i", { className: "dot limit" }), `${limitText(e.status, limit)}${storeOf(e.status)?.up ? ", on all instances together" : ""}${ofAll(e.status)}`));
	if (z.in_flight_adaptive) placesValues(e, at);
	$("zone-values").replaceChildren(el("time", { textContent: at === null ? "now" : clock(ends(i)[at]) }), ...list);
}

function zoneMarks(z) {
	const { from, to } = scope();
	const items = marksOf(z).filter((m) => Date.parse(m.at) / 1000 >= from && Date.parse(m.at) / 1000 <= to + fine.step).map((m) => {
		const what = { started: `Caddy started with configuration ${m.text}`, reload: `configuration ${m.text} loaded`, rules: `rules from ${m.name} changed`, down: `${m.name}${m.text ? ` (node ${m.text})` : ""} away`, up: `${m.name}${m.text ? ` (node ${m.text})` : ""} back: limits are shared again` }[m.kind];
		return el("li", {}, `${when(m.at)} ${plain(what)}`);
	});
	$("zone-marks").replaceChildren(...items);
}

const tableRows = 30; // at most

function zoneTable(e) {
	if (!$("zone-table").open) return;
	const { i, from, to } = scope(), r = ranges[i], first = r.head - r.kept + 1, list = [];
	const begin = Math.max(0, Math.ceil(from / r.step) - first), end = Math.min(r.kept, Math.ceil(to / r.step) - first), by = Math.max(1, Math.ceil((end - begin) / tableRows));
	const seen = seriesOf.map(([c]) => c).filter((c) => c === "allowed" || c === "denied" || e.sums[c] > 0);
	const places = e.status.in_flight_adaptive ? placesCurves(e, i) : [];
	const known = perSecond(e, i, "allowed"); // null: nobody counted then
	const sum = (c, from, to) => known.slice(from, to).every((n) => n === null) ? "–" : whole(countsOf(e, i, c).slice(from, to).reduce((a, b) => a + b, 0));
	for (let k = end - by; k > begin - by; k -= by) list.push(row(cell(whenOf((first + Math.max(k, begin)) * r.step)), ...seen.map((c) => cell(sum(c, Math.max(k, begin), k + by), true)), ...places.map(([, list]) => cell(meanText(list.slice(Math.max(k, begin), k + by)), true))));
	$("zone-table").querySelector("table").replaceChildren(head(`${span(by * r.step)} from`, ...seen.map((c) => `#${titles[c]}`), ...places.map(([c]) => `#${c}`)), el("tbody", {}, ...list));
}

// countedOf is what a zone has counted since the start: of all instances if all are shown, else of
// this one; null: nobody has said it yet.
const countedOf = (z, mine) => (inFleet() ? fleet.answer?.zones.find((o) => o.name === z.name) : mine) || null;

function zoneRules(z, open) {
	const denials = open?.denied || {}, would = open?.shadow_denied || {}, shadows = z.shadow || open?.shadow_denied;
	const number = (n) => cell(open ? whole(n || 0) : "…", true);
	const counts = (name) => [number(denials[name]), ...(shadows ? [number(would[name])] : [])];
	const away = awayOf(z), rows = z.rules.map((r) => row(cell(r.name), cell(limitOf(r) + (z.unit ? ` ${z.unit}` : "")), cell(algorithmOf(r)), ...(away ? [cell(el("span", { className: r.enforced ? "out" : "", textContent: away.on_failure === "local" ? `${r.enforced || r.limit}/${spanOf(r)}` : away.on_failure === "allow" ? "no limit" : "503" }))] : []), ...counts(r.name)));
	if (z.in_flight) rows.push(row(cell("in_flight"), cell(`${z.in_flight} at a time`), cell("in flight"), ...(away ? [cell(String(z.in_flight_enforced || z.in_flight))] : []), ...counts("in_flight")));
	if (z.in_flight_adaptive) rows.push(row(cell("in_flight"), cell("adaptive"), cell("in flight"), ...(away ? [cell("adaptive")] : []), ...counts("in_flight")));
	const titlesOf = ["rule", "limit", "algorithm", ...(away ? ["enforced now"] : []), "#denied since start", ...(shadows ? ["#would be denied"] : [])];
	$("zone-rules").replaceChildren(head(...titlesOf), el("tbody", {}, ...(rows.length ? rows : [row(cell("none: requests pass, but for overrides"))])));
}

function zoneFacts(z, open, counted) {
	const d = counted?.decisions || {}, s = storeOf(z), named = z.rules.map((r) => r.name), who = inFleet() ? "All instances, since each started: " : "";
	const others = Object.entries(counted?.denied || {}).filter(([r]) => !named.includes(r) && r !== "in_flight").map(([r, n]) => `${r}: ${whole(n)}`).join(", ");
	const facts = [
		["State", z.enabled ? z.shadow ? "shadow: reports what it would deny, and denies nothing" : "on" : "off: all requests pass uncounted"],
		["Rules from", z.origin === "config" ? "the configuration" : `${z.origin}, which replaces the configuration`],
		["Key", el("code", { textContent: z.key.join(" ") })],
		["Networks", z.ipv4_prefix < 32 || z.ipv6_prefix < 128 ? `addresses count by /${z.ipv4_prefix} (IPv4) and /${z.ipv6_prefix} (IPv6)` : "addresses count whole"],
		["Overrides", whole(z.overrides)],
		...(z.rules.some((r) => r.block) ? [["Blocked keys", `${whole(z.blocked || 0)} that this instance knows of`]] : []),
		["Store", s ? `${s.name}, ${s.up ? s.instances ? `shared by ${plural(s.instances, "instance")}` : `shared, ${instancesOf(s)}` : "away"}` : "this process"],
		["Keys here", `${inFleet() ? "in this instance " : ""}${whole(open.keys)} of at most ${whole(z.max_keys)}${s ? " kept for an outage" : ""}`],
		["Since start", who + (!counted ? "…" : ["allowed", "delayed", "denied", "shadow_denied", "shadow_delayed", "denied_elsewhere", "left", "skipped"].filter((k) => d[k]).map((k) => `${whole(d[k])} ${titles[k]}`).concat(counted.settled_cost ? [`${whole(counted.settled_cost)} ${z.unit || ""} by their responses`] : []).join(", ") || "no decision")],
		...(others ? [["Denied by others", others]] : []),
		...(open.handlers > 1 ? [["Handlers", `${open.handlers} share this zone`]] : []),
	];
	$("zone-facts").replaceChildren(...facts.flatMap(([k, v]) => [el("dt", { textContent: k }), el("dd", {}, v)]));
}

function hits(table, list, z, what, counted = "about") {
	if (!list.length) return table.replaceChildren(el("tbody", {}, row(cell(what))));
	const kept = table.contains(document.activeElement) ? document.activeElement.dataset.key : "";
	table.replaceChildren(head(`#${counted}`, "key"), el("tbody", {}, ...list.map((h) => {
		const b = el("button", { type: "button", className: "link", title: `${h.key}: look at this key` }, visible(h.name ? withNetwork(z, h.name) : h.key));
		b.dataset.key = h.key;
		b.addEventListener("click", () => h.parts ? go({ ...noKey, key: z.name, part: h.parts }) : showHash(z.name, h.key, h.name));
		return row(cell(whole(h.times), true), cell(el("span", {}, b, h.blocked ? el("span", { className: "out", textContent: ` blocked for ${span(h.blocked)}` }) : h.cause && h.cause !== "rule" ? el("span", { className: "hint", textContent: ` ${h.cause}` }) : "")));
	})));
	if (kept) [...table.querySelectorAll("button")].find((b) => b.dataset.key === kept)?.focus();
}

// spent shows the costs of a zone with group_by, the greatest first.
function spent(s) {
	$("spend-box").hidden = !s?.groups.length;
	if (!s) return;
	$("spend-title").textContent = `${sentence(s.unit)} by ${s.group_by.map(plain).join(" / ")}, since each instance started`;
	$("spend").replaceChildren(head(`#${s.unit}`, "#share", "group"), el("tbody", {}, ...s.groups.map((g) => row(cell(whole(g.cost), true), cell(`${(g.cost / s.cost * 100).toFixed(1)} %`, true), cell(visible(g.group))))));
}

// blockedKeys lists the blocked keys among the busiest and most denied, the longest first.
function blockedKeys(z, top) {
	const list = [...new Map([...top.busiest, ...top.most_denied].filter((h) => h.blocked).map((h) => [h.key, h])).values()].sort((a, b) => b.blocked - a.blocked);
	$("blocked-box").hidden = !list.length;
	if (list.length) hits($("blocked"), list, z, "");
}

function zoneBanner(z) {
	const s = awayOf(z), now = enforcedOf(z), list = [];
	if (s) list.push(el("p", { className: "banner bad" }, el("strong", { textContent: `${s.name} is away: this instance decides locally.` }), now.length ? `Enforced now: ${now.join("; ")}.` : outageText(s)));
	if (!z.enabled) list.push(el("p", { className: "banner" }, el("strong", { textContent: "This zone is off." }), "All requests pass it uncounted, because the remote rules say so."));
	$("zone-banner").replaceChildren(...list);
}

// drawZone shows the zone that is open. open is what the last message says of it.
function drawZone() {
	const e = zones.get(state.open), box = $("zone");
	if (!box.open) return;
	if (!e) {
		$("zone-banner").replaceChildren(el("p", { className: "banner bad" }, el("strong", { textContent: "There is no such zone." }), "The running configuration has none of this name. Close this view to see those that it has."));
		$("places").hidden = true;
		for (const id of ["busiest", "denied", "costly", "zone-rules", "zone-change"]) $(id).replaceChildren();
		return;
	}
	const z = e.status;
	$("zone-badges").replaceChildren(...badgesOf(z));
	zoneBanner(z);
	rangeBar($("zone-ranges"));
	zoneGraph.draw(e, true);
	drawPlaces(e);
	zoneValues(pointed);
	zoneMarks(z);
	zoneTable(e);
	if (Date.now() - told > 10000) {
		$("zone-plot").setAttribute("aria-label", inWords(e));
		$("places-plot").setAttribute("aria-label", placesInWords(e));
		told = Date.now();
	}
	const open = state.live.open;
	const mine = open && open.name === z.name ? open : null;
	zoneRules(z, countedOf(z, mine));
	zoneChange(z);
	zoneExceptions(z);
	if (!mine) return;
	placesNow(z, mine);
	zoneFacts(z, mine, countedOf(z, mine));
	$("key-hint").replaceChildren(...(z.log_key ? [] : ["Keys are shown as hashes, because they may not be logged: they can be reset, but to block or allow one its parts have to be typed. With ", el("code", { textContent: "log_key" }), " in the handler, this page and the log name them."]));
	const quiet = z.disable_metrics ? "not counted: the handler has disable_metrics" : "none yet";
	const top = !inFleet() ? mine.top : fleet.top?.zone === z.name ? fleet.top : null;
	if (!top) return;
	hits($("busiest"), top.busiest, z, quiet);
	hits($("denied"), top.most_denied, z, quiet);
	$("costly-box").hidden = !top.most_costly?.length;
	hits($("costly"), top.most_costly || [], z, quiet, "cost");
	blockedKeys(z, top);
	spent(inFleet() ? fleet.spend : mine.spend);
}

function dropGraphs() {
	zoneGraph.drop();
	placesGraph.drop();
}

function showZone(name) {
	state.open = name;
	pointed = null;
	told = 0;
	dropGraphs();
	$("zone-name").textContent = name;
	for (const id of ["busiest", "denied"]) $(id).replaceChildren(el("tbody", {}, row(cell("asking…"))));
	for (const id of ["zone-facts", "zone-rules", "zone-badges", "zone-banner", "zone-values", "zone-change", "places-move", "places-members"]) $(id).replaceChildren();
	if (!$("zone").open) $("zone").showModal();
	$("zone").scrollTop = 0;
	restart();
}

// arriveAtZone opens and closes the zone as the address says.
function arriveAtZone() {
	if (link.zone === state.open) return;
	if (link.zone) return showZone(link.zone);
	const name = state.open;
	state.open = "";
	dropGraphs();
	$("zone").close();
	restart();
	[...$("zones").querySelectorAll("[data-zone]")].find((c) => c.dataset.zone === name)?.querySelector("a").focus();
}

// The event comes later than the close, and another zone may be open by then.
$("zone").addEventListener("close", () => { if (!$("zone").open) go({ zone: "" }); });
$("zone-table").addEventListener("toggle", drawZone);
$("zone-key").addEventListener("click", () => go({ ...noKey, key: state.open }));
for (const id of ["zone-plot", "places-plot"]) $(id).addEventListener("keydown", zoomByKey);
