"use strict";
(() => {
// The page asks the API beside it. Nothing that comes from there becomes markup:
// all of it is put into text nodes.
const every = 2000, kept = 150, cards = 24; // 150 samples of 2 s are five minutes
const $ = (id) => document.getElementById(id);
const el = (tag, props, ...children) => {
	const e = Object.assign(document.createElement(tag), props);
	e.append(...children);
	return e;
};
const times = [];
const zones = new Map(); // name → {status, last, allowed[], denied[], card, plot}
let open = "", last = null, timer = 0;

const span = (s) => s < 1 ? `${Math.round(s * 1000)} ms` : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
const micro = (s) => s < 1e-3 ? `${(s * 1e6).toFixed(s < 1e-5 ? 1 : 0)} µs` : `${(s * 1e3).toFixed(1)} ms`;
const windowOf = (s) => s % 86400 === 0 ? `${s / 86400}d` : s % 3600 === 0 ? `${s / 3600}h` : s % 60 === 0 ? `${s / 60}m` : s < 1 ? `${s * 1000}ms` : `${s}s`;
const rate = (n) => n >= 1e4 ? `${(n / 1e3).toFixed(0)}k` : n >= 1e3 ? `${(n / 1e3).toFixed(1)}k` : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1);
const rulesOf = (z) => z.rules.map((r) => `${r.limit}/${windowOf(r.window)} ${r.algorithm}`).concat(z.in_flight ? [`in flight ${z.in_flight}`] : []).join(", ");
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

function sample(all) {
	const now = Date.parse(all.now) / 1000;
	const before = times.length ? times[times.length - 1] : null;
	if (before !== null && now <= before) return;
	times.push(now);
	const seen = new Set();
	for (const z of all.zones) {
		seen.add(z.name);
		let e = zones.get(z.name);
		if (!e) zones.set(z.name, e = { allowed: Array(times.length - 1).fill(null), denied: Array(times.length - 1).fill(null) });
		const grown = (f) => e.status && f(z) >= f(e.status) ? (f(z) - f(e.status)) / (now - before) : null;
		e.allowed.push(grown(passed));
		e.denied.push(grown(refused));
		e.status = z;
	}
	for (const [name, e] of zones) {
		if (!seen.has(name)) {
			if (e.card) e.card.remove();
			zones.delete(name);
		} else if (times.length > kept) {
			e.allowed.shift();
			e.denied.shift();
		}
	}
	if (times.length > kept) times.shift();
}

function plotOptions(width) {
	const soft = color("--soft"), axis = { stroke: soft, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
	const line = (name) => ({ stroke: color(name), width: 1.5, fill: color(name) + "22", points: { show: false } });
	return {
		width, height: 110, cursor: { show: false }, legend: { show: false }, padding: [6, 4, 0, 0],
		scales: { x: { time: true, range: () => { const end = times[times.length - 1]; return [Math.min(times[0], end - 60), end]; } }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] } },
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

function render() {
	const wanted = $("filter").value.trim().toLowerCase();
	const now = (e, list) => e[list][e[list].length - 1] || 0;
	const list = [...zones.keys()].filter((n) => n.toLowerCase().includes(wanted)).sort();
	if (list.length > cards) list.sort((a, b) => passed(zones.get(b).status) + refused(zones.get(b).status) - passed(zones.get(a).status) - refused(zones.get(a).status) || (a < b ? -1 : 1));
	const shown = list.slice(0, cards);
	$("shown").textContent = list.length > cards ? `the busiest ${cards} of ${list.length}` : `${list.length}`;
	for (const [name, e] of zones) {
		if (e.card && !shown.includes(name)) {
			e.card.remove();
			if (e.plot) e.plot.destroy();
			e.card = e.plot = null;
		}
	}
	shown.forEach((name, i) => {
		const e = zones.get(name), z = e.status;
		e.card = e.card || card(name);
		if ($("zones").children[i] !== e.card) $("zones").insertBefore(e.card, $("zones").children[i] || null);
		const p = e.card.parts;
		const badges = [z.enabled ? "" : "off", z.shadow ? "shadow" : "", z.origin !== "config" ? z.origin : ""].filter(Boolean);
		p.badges.replaceChildren(...badges.flatMap((b) => [el("span", { className: "badge", textContent: b }), " "]));
		p.rate.replaceChildren(el("b", { textContent: rate(now(e, "allowed")) }), "/s  ", el("em", { textContent: rate(now(e, "denied")) }), "/s");
		p.rules.textContent = rulesOf(z);
		const data = [times, e.allowed, e.denied], width = p.plot.clientWidth;
		if (!e.plot && width) e.plot = new uPlot(plotOptions(width), data, p.plot);
		else if (e.plot) {
			if (e.plot.width !== width) e.plot.setSize({ width, height: 110 });
			e.plot.setData(data);
		}
	});
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
			` ${k.rule ? `by ${k.rule}` : ""}${k.retry_after !== undefined ? `, again in ${span(k.retry_after)}` : ""} (${k.parts ? k.parts.join(" ") + ", " : ""}${k.key}${k.mode ? `, ${k.mode}` : ""})${k.forgotten ? `; forgotten ${k.forgotten}` : ""}${k.error ? `: ${k.error}` : ""}`);
		const table = el("table", {}, row(cell("rule", false, "th"), cell("limit", true, "th"), cell("left", true, "th"), cell("reset", true, "th")),
			...k.rules.map((r) => row(cell(r.name), cell(`${r.limit}/${windowOf(r.window)}`, true), cell(String(r.remaining), true), cell(span(r.reset_after), true))));
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
		sample(all);
		health(all);
		render();
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

$("filter").addEventListener("input", render);
$("find").addEventListener("submit", (e) => e.preventDefault());
$("zone").addEventListener("close", () => { open = ""; });
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
	render();
});
addEventListener("resize", render);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
tick();
})();
