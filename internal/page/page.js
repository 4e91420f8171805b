"use strict";
(() => {
// The page asks the API beside it. Nothing that comes from there becomes markup:
// all of it is put into text nodes.
const every = 2000, kept = 150, cards = 24; // 150 steps of 2 s are five minutes, as the API keeps them
const $ = (id) => document.getElementById(id);
const el = (tag, props, ...children) => {
	const e = Object.assign(document.createElement(tag), props);
	e.append(...children);
	return e;
};
const zones = new Map(); // name → {status, card, plot, upto, allowed[], denied[]}, of which the last are those of step upto
let open = "", last = null, timer = 0, step = 2, head = 0; // seconds a step; the last one

const span = (s) => s < 1 ? `${Math.round(s * 1000)} ms` : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
const micro = (s) => s < 1e-3 ? `${(s * 1e6).toFixed(s < 1e-5 ? 1 : 0)} µs` : `${(s * 1e3).toFixed(s < .01 ? 1 : 0)} ms`;
const windowOf = (s) => s % 86400 === 0 ? `${s / 86400}d` : s % 3600 === 0 ? `${s / 3600}h` : s % 60 === 0 ? `${s / 60}m` : s < 1 ? `${s * 1000}ms` : `${s}s`;
const rate = (n) => n >= 1e4 ? `${(n / 1e3).toFixed(0)}k` : n >= 1e3 ? `${(n / 1e3).toFixed(1)}k` : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1);
const optionsOf = (r) => Object.entries(r.options || {}).map(([k, v]) => v === true ? ` ${k}` : ` ${k} ${k === "step" ? windowOf(v / 1e9) : v}`).join("");
const rulesOf = (z) => z.rules.map((r) => `${r.limit}/${windowOf(r.window)} ${r.algorithm}${optionsOf(r)}`).concat(z.in_flight ? [`in flight ${z.in_flight}`] : []).join(", ");
const passed = (z) => ((z.decisions || {}).allowed || 0) + ((z.decisions || {}).delayed || 0);
const refused = (z) => ((z.decisions || {}).denied || 0) + ((z.decisions || {}).shadow_denied || 0);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function ask(path, options) {
	// The page's own address may hold a password, with which nothing can be fetched.
	const r = await fetch(new URL(path, location.origin + location.pathname), { cache: "no-store", ...options });
	const body = await r.json().catch(() => ({})); // what lies between may answer something else
	if (!r.ok) throw new Error(body.error || `status ${r.status}`);
	return body;
}

function chip(text, state) { return el("span", { className: `chip ${state}`, textContent: text }); }

function health(all) {
	const now = Date.parse(all.now), list = [];
	if (!all.stores.length) list.push(chip("counts in this process", "good"));
	for (const s of all.stores) {
		const since = span(Math.max(0, (now - Date.parse(s.since)) / 1000));
		list.push(chip(s.up ? `${s.name}: shared for ${since}, ${s.instances} instance${s.instances === 1 ? "" : "s"}` : `${s.name}: away for ${since}, on_failure ${s.on_failure}`, s.up ? "good" : "bad"));
	}
	if (all.rules) {
		const r = all.rules, age = r.confirmed ? `, confirmed ${span(Math.max(0, (now - Date.parse(r.confirmed)) / 1000))} ago` : "";
		list.push(chip(`rules from ${r.source}${age}${r.error ? `: ${r.error}` : ""}`, r.error ? "bad" : "good"));
		if (r.unknown_zones) list.push(chip(`zones unknown here: ${r.unknown_zones.join(", ")}`, ""));
	}
	for (const t of all.decision_seconds) {
		const was = last && last.decision_seconds.find((o) => o.store === t.store);
		const n = was ? t.count - was.count : 0;
		const mean = n > 0 ? `${micro((t.sum - was.sum) / n)} now, ` : "";
		list.push(chip(`decisions ${t.store}: ${mean}99 % under ${micro(t.p99)}`, ""));
	}
	$("health").replaceChildren(...list);
}

function take(all) {
	const seen = new Set();
	for (const z of all.zones) {
		seen.add(z.name);
		const e = zones.get(z.name);
		if (e) e.status = z;
		else zones.set(z.name, { status: z, upto: 0, allowed: [], denied: [] });
	}
	for (const [name, e] of zones) {
		if (seen.has(name)) continue;
		drop(e);
		zones.delete(name);
	}
}

// What the zones let pass and denied in each step is asked of those that are shown.
async function past(names) {
	const query = new URLSearchParams(names.map((n) => ["zone", n]));
	query.set("since", names.reduce((least, n) => Math.min(least, zones.get(n)?.upto || 0), head));
	if (!names.length) return;
	const h = await ask(`history?${query}`);
	step = h.step;
	if (h.last < head) { // another clock: what is known is no longer where it was
		for (const e of zones.values()) e.upto = 0;
		head = 0;
		return past(names);
	}
	head = h.last;
	for (const n of names) {
		const e = zones.get(n), given = h.zones[n] || { allowed: [], denied: [] }; // it may be left out of the metrics
		if (!e) continue;
		for (const list of ["allowed", "denied"]) {
			const at = given[list].map((count) => count / step), missing = head - at.length - e.upto;
			if (!e.upto) e[list] = [];
			if (missing >= 0) e[list].push(...Array(Math.min(missing, kept)).fill(null));
			else at.splice(0, -missing); // known already
			e[list].push(...at);
			e[list].splice(0, e[list].length - kept);
		}
		e.upto = head;
	}
}

const times = (upto) => Array.from({ length: kept }, (_, i) => (upto + 2 - kept + i) * step); // when each step ended

function plotOptions(e, width) {
	const soft = color("--soft"), axis = { stroke: soft, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
	const line = (name) => ({ stroke: color(name), width: 1.5, fill: color(name) + "22", points: { show: false } });
	return {
		width, height: 110, cursor: { show: false }, legend: { show: false }, padding: [6, 4, 0, 0],
		scales: { x: { time: true, range: (_, __, end) => [Math.min(end - 60, end - step * (kept - 1 - Math.max(0, e.allowed.findIndex((v) => v !== null)))), end] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] } },
		axes: [{ ...axis, size: 22, space: 70 }, { ...axis, size: 38, space: 30, values: (_, v) => v.map(rate) }],
		series: [{}, line("--allowed"), line("--denied")],
	};
}

function card(name) {
	const parts = { name: el("span", { className: "name", textContent: name }), badges: el("span"), rate: el("span", { className: "rate" }), rules: el("span", { className: "rules" }), plot: el("span", { className: "plot" }) };
	const c = el("button", { type: "button", className: "zone" }, el("span", { className: "top" }, parts.name, parts.badges, parts.rate), parts.rules, parts.plot);
	c.dataset.zone = name;
	c.addEventListener("click", () => show(name));
	return Object.assign(c, { parts });
}

// drop takes a zone's card away.
function drop(e) {
	if (e.card) e.card.remove();
	if (e.plot) e.plot.destroy();
	e.card = e.plot = null;
}

// chosen are the zones to show, the busiest if they are many.
function chosen() {
	const wanted = $("filter").value.trim().toLowerCase(), all = (n) => passed(zones.get(n).status) + refused(zones.get(n).status);
	const list = [...zones.keys()].filter((n) => n.toLowerCase().includes(wanted)).sort();
	if (list.length > cards) list.sort((a, b) => all(b) - all(a) || (a < b ? -1 : 1));
	$("shown").textContent = list.length > cards ? `the busiest ${cards} of ${list.length}` : `${list.length}`;
	return list.slice(0, cards);
}

function render(names) {
	for (const [name, e] of zones) if (e.card && !names.includes(name)) drop(e);
	names.forEach((name, i) => {
		const e = zones.get(name), z = e.status, now = (list) => rate(e[list][e[list].length - 1] || 0);
		e.card = e.card || card(name);
		if ($("zones").children[i] !== e.card) $("zones").insertBefore(e.card, $("zones").children[i] || null);
		const p = e.card.parts;
		const badges = [z.enabled ? "" : "off", z.shadow ? "shadow" : "", z.origin !== "config" ? z.origin : ""].filter(Boolean);
		p.badges.replaceChildren(...badges.flatMap((b) => [el("span", { className: "badge", textContent: b }), " "]));
		p.rate.replaceChildren(el("b", { textContent: now("allowed") }), "/s  ", el("em", { textContent: now("denied") }), "/s");
		p.rules.textContent = rulesOf(z);
		const data = [times(e.upto), e.allowed, e.denied], width = p.plot.clientWidth;
		if (!e.plot && width) e.plot = new uPlot(plotOptions(e, width), data, p.plot);
		else if (e.plot) {
			if (e.plot.width !== width) e.plot.setSize({ width, height: 110 });
			e.plot.setData(data);
		}
	});
}

function redraw() { render(chosen()); }

async function refresh() {
	const names = chosen();
	await past(names);
	render(names.filter((n) => zones.has(n)));
}

function row(...cells) { return el("tr", {}, ...cells); }
function cell(text, number, tag = "td") { return el(tag, { textContent: text, className: number ? "number" : "" }); }

function hits(table, list) {
	table.replaceChildren(row(cell("about", true, "th"), cell("key", false, "th")), ...list.map((h) => {
		const b = el("button", { type: "button", textContent: h.name || h.key, title: h.key });
		b.addEventListener("click", () => lookAt(`hash=${encodeURIComponent(h.key)}`));
		return row(cell(String(h.times), true), el("td", {}, b));
	}));
	if (!list.length) table.replaceChildren(row(cell("none yet")));
}

const zonePath = (name, rest) => `zones/${encodeURIComponent(name)}/${rest}`;

async function tops() {
	if (!open) return;
	const top = await ask(zonePath(open, "top"));
	if (top.zone !== open) return;
	hits($("busiest"), top.busiest);
	hits($("denied"), top.most_denied);
}

function facts() {
	const e = zones.get(open);
	if (!e) return;
	const z = e.status, rows = [["Rules", rulesOf(z) || "none"], ["From", z.origin], ["State", z.enabled ? z.shadow ? "shadow: denies nothing" : "on" : "off: all pass"],
		["Key", z.key.join(" ")], ["Overrides", String(z.overrides)], ["Store", z.store], ["Keys here", `${z.keys} of ${z.max_keys}`],
		["Denied by", Object.entries(z.denied || {}).map(([r, n]) => `${r}: ${n}`).join(", ") || "nothing"]];
	$("zone-facts").replaceChildren(...rows.flatMap(([k, v]) => [el("dt", { textContent: k }), el("dd", { textContent: v })]));
}

function show(name) {
	open = name;
	$("zone-name").textContent = name;
	$("answer").replaceChildren();
	hits($("busiest"), []);
	hits($("denied"), []);
	$("parts").replaceChildren(...zones.get(name).status.key.map((k) => el("label", { textContent: `${k} ` }, el("input", { name: "part", required: true, autocomplete: "off", spellcheck: false }))));
	facts();
	$("zone").showModal();
	tops().catch(failed);
}

let query = "";
async function lookAt(q, method = "GET") {
	query = q;
	const box = $("answer");
	try {
		const k = await ask(zonePath(open, `key?${q}`), { method });
		const head = el("p", {}, el("span", { className: `verdict ${k.decision}`, textContent: k.decision }),
			` ${k.rule ? `by ${k.rule}` : ""}${k.retry_after !== undefined ? `, again in ${span(k.retry_after)}` : ""} (${k.parts ? k.parts.join(" ") + ", " : ""}${k.key}${k.mode ? `, ${k.mode}` : ""}${k.shared_counter ? ", counted together with others: the zone is full" : ""})${k.forgotten ? `; forgotten ${k.forgotten}` : ""}${k.error ? `: ${k.error}` : ""}`);
		const table = el("table", {}, row(cell("rule", false, "th"), cell("limit", true, "th"), cell("left", true, "th"), cell("reset", true, "th")),
			...k.rules.map((r) => row(cell(r.name), cell(`${r.limit}/${windowOf(r.window)}`, true), cell(String(r.remaining), true), cell(r.reset_after ? span(r.reset_after) : "unused", true))));
		box.replaceChildren(head, ...(k.rules.length ? [table] : []));
	} catch (e) {
		box.replaceChildren(el("p", { className: "verdict denied", textContent: e.message }));
	}
}

function failed(e) {
	$("state").className = "bad";
	$("state").textContent = `Caddy does not answer: ${e.message}`;
}

async function tick() {
	clearTimeout(timer);
	try {
		const all = await ask("zones");
		take(all);
		health(all);
		await refresh();
		facts();
		last = all;
		$("state").className = "";
		$("state").textContent = `as of ${new Date(all.now).toLocaleTimeString()}`;
		if ($("zone").open) await tops();
	} catch (e) {
		failed(e);
	}
	timer = setTimeout(tick, document.hidden ? 5 * every : every);
}

$("filter").addEventListener("input", () => refresh().catch(failed));
$("find").addEventListener("submit", (e) => e.preventDefault());
$("zone").addEventListener("close", (e) => { if (!e.target.open) open = ""; }); // another may be shown by now
$("key").addEventListener("submit", (e) => {
	e.preventDefault();
	lookAt(new URLSearchParams(new FormData(e.target)).toString());
});
$("reset").addEventListener("click", () => {
	const named = new URLSearchParams(new FormData($("key")));
	const q = [...named.values()].every(Boolean) ? named.toString() : query;
	if (q) lookAt(q, "DELETE");
	else $("key").reportValidity();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
	for (const e of zones.values()) {
		if (e.plot) e.plot.destroy();
		e.plot = null;
	}
	redraw();
});
addEventListener("resize", redraw);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
tick();
})();
