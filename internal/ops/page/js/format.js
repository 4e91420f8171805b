// Text for people. Nothing that comes from the API becomes markup: all of it is put into
// text nodes.
const $ = (id) => document.getElementById(id);
const el = (tag, props, ...children) => {
	const e = document.createElement(tag);
	for (const [k, v] of Object.entries(props || {})) {
		if (k.includes("-") || k === "role") e.setAttribute(k, v);
		else e[k] = v;
	}
	e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
	return e;
};

// refill replaces what is in a box when what it is made of has changed: a button that is replaced
// while it is pressed is not clicked. The focus stays.
function refill(box, of, make) {
	const text = JSON.stringify(of);
	if (box.dataset.of === text) return;
	const kept = box.contains(document.activeElement) ? document.activeElement.textContent : "";
	box.dataset.of = text;
	box.replaceChildren(...make());
	if (kept) [...box.children].find((c) => c.textContent === kept)?.focus();
}

const plural = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
const whole = (n) => Math.round(n).toLocaleString("en");
const span = (s) => s < 1e-3 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${Math.round(s * 1e3)} ms` : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : s < 129600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
const micro = (s) => s < 1e-3 ? `${(s * 1e6).toFixed(s < 1e-5 ? 1 : 0)} µs` : `${(s * 1e3).toFixed(s < .01 ? 1 : 0)} ms`;
const windowOf = (s) => s % 86400 === 0 ? `${s / 86400}d` : s % 3600 === 0 ? `${s / 3600}h` : s % 60 === 0 ? `${s / 60}m` : s < 1 ? `${s * 1000}ms` : `${s}s`;
const compact = (n) => n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1e4 ? `${(n / 1e3).toFixed(0)}k` : n >= 1e3 ? `${(n / 1e3).toFixed(1)}k` : n >= 10 || Number.isInteger(n) ? n.toFixed(0) : n >= 1 ? n.toFixed(1) : n >= 1e-4 ? String(Number(n.toPrecision(2))) : n.toExponential(0);
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
// when is an instant as the whole page writes it: of today, by this instance's clock, without the day.
function when(time) {
	const day = (t) => new Date(t).toLocaleDateString("sv"); // 2026-01-02
	const text = clock(Date.parse(time) / 1000);
	return day(time) === day(state.live?.now ?? Date.now()) ? text : `${day(time)} ${text}`;
}
const whenOf = (seconds) => when(new Date(seconds * 1000).toISOString());
const since = (time, now) => span(Math.max(0, (Date.parse(now) - Date.parse(time)) / 1000));

const optionsOf = (r) => Object.entries(r.options || {}).map(([k, v]) => v === true ? ` ${k}` : k === "time_zone" ? ` ${v}` : ` ${k} ${k === "step" ? windowOf(v / 1e9) : v}`).join("");
const algorithmOf = (r) => `${r.algorithm}${optionsOf(r)}${r.block ? ` block ${windowOf(r.block)}` : ""}`;
// spanOf is the window of a rule.
const spanOf = (r) => r.period ?? windowOf(r.window);
const limitOf = (r) => `${r.limit_from ?? r.limit}/${spanOf(r)}${r.limit_from ? ` else ${r.limit}` : ""}`;
const ruleOf = (r) => `${/^\d+$/.test(r.name) ? "" : `${r.name}: `}${limitOf(r)} ${algorithmOf(r)}`;
const rulesOf = (z) => z.rules.map(ruleOf).concat(z.in_flight ? [`in flight ${z.in_flight}`] : []).concat(z.in_flight_adaptive ? ["in flight adaptive"] : []);

// enforcedOf is what this instance enforces of a zone's rules while the store is away.
const enforcedOf = (z) => z.rules.filter((r) => r.enforced).map((r) => `${r.enforced}/${spanOf(r)}, not ${limitOf(r)}`)
	.concat(z.in_flight_enforced && z.in_flight_enforced !== z.in_flight ? [`${z.in_flight_enforced} in flight, not ${z.in_flight}`] : []);

// hidden matches the characters that are not seen, or change what is seen around them:
// controls, bidirectional marks, zero-width characters, lone surrogates.
const hidden = /[\p{C}\p{Zl}\p{Zp}\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]|[^\S ]/gu;
const codeOf = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

// plain returns a text with hidden characters escaped, for attributes and titles.
const plain = (text) => String(text).replace(hidden, codeOf);

// visible returns a text that clients choose, with hidden characters as escapes that look
// different from the same letters in the text. It cannot change the direction of what is
// around it.
function visible(text) {
	const box = el("bdi", { className: "key" });
	let at = 0;
	for (const m of String(text).matchAll(hidden)) {
		if (m.index > at) box.append(text.slice(at, m.index));
		box.append(el("span", { className: "escape", textContent: codeOf(m[0]) }));
		at = m.index + m[0].length;
	}
	box.append(String(text).slice(at));
	return box;
}

// withNetwork appends the network that a zone counts to the addresses in a key.
function withNetwork(z, text) {
	return text.split(" ").map((part) => {
		if (/^\d{1,3}(\.\d{1,3}){3}$/.test(part)) return z.ipv4_prefix < 32 ? `${part}/${z.ipv4_prefix}` : part;
		return part.includes(":") && /^[0-9a-f:]+(\d+\.\d+\.\d+\.\d+)?$/i.test(part) && z.ipv6_prefix < 128 && part.split(":").length > 2 ? `${part}/${z.ipv6_prefix}` : part;
	}).join(" ");
}
