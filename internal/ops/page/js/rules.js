// Changing the rules of a zone: the document of the rule source is read, changed, checked,
// shown as a difference, and written if it is still the one that was read.
const writable = () => state.live && !state.live.read_only && ["redis", "file"].includes(state.live.rules?.source);

function zoneChange(z) {
	const box = $("zone-change");
	if (!writable()) return box.replaceChildren(...(state.live.read_only || state.live.rules ? [] : [el("span", { className: "hint" }, "To change limits here or with ", el("code", { textContent: "caddy rate-limit set" }), ", add ", el("code", { textContent: "rules file <path>" }), " or, with store redis, ", el("code", { textContent: "rules redis diana:rules" }), " to rate_limit in the global options.")]));
	const of = JSON.stringify([z.name, z.rules.map((r) => r.name)]);
	if (box.dataset.of === of && box.firstChild) return;
	box.dataset.of = of;
	box.replaceChildren(button("Change these rules…", () => showRules(state.open)), " ", button("Changes so far…", showChanges), " ", button("Edit the document…", () => showRules(asText)), setForm(z));
}

const every = "*"; // in a document: what it says of every zone
const asText = ""; // no zone: the document as text, for what has no form, such as overrides
$("open-every").addEventListener("click", () => showRules(every));

// everyZone is what a document says of every zone.
function everyZone(doc) {
	const own = doc.zones?.[every] || {};
	return { enabled: own.enabled !== false, shadow: own.shadow === true };
}

// document reads the document and its ETag.
async function readDocument() {
	const r = await fetch(new URL("rules", base), { cache: "no-store" });
	const doc = await answerOf(r.clone()), tag = r.headers.get("ETag");
	if (!tag) throw new Problem("The answer has no ETag, without which nothing can be written.", r.status);
	delete doc.etag;
	return { doc, tag, lost: r.headers.get("Rate-Limit-Rules") === "lost" };
}

// durationOf is a duration of a configuration as people write it.
const durationOf = (d) => typeof d === "number" && d % 1e9 === 0 ? windowOf(d / 1e9) : d;

// ruleWith is a rule with another limit as a document has it, with durations that people can
// read. The default algorithm depends on the limit: it is named if it would be another, with
// which the zone would count anew.
function ruleWith(r, limit) {
	const c = { ...r.config, limit };
	if (!c.algorithm && (r.limit > 128) !== (limit > 128)) c.algorithm = { name: r.algorithm };
	c.window = durationOf(c.window);
	if (c.block) c.block = durationOf(c.block);
	if (c.algorithm?.step) c.algorithm = { ...c.algorithm, step: durationOf(c.algorithm.step) };
	return c;
}

// changedEvery applies the form of every zone to the document.
function changedEvery(doc, form) {
	const next = structuredClone(doc);
	next.zones ||= {};
	const own = { ...form.enabled ? {} : { enabled: false }, ...form.shadow ? { shadow: true } : {} };
	if (Object.keys(own).length) next.zones[every] = own;
	else delete next.zones[every];
	return next;
}

// changedDocument applies the form to the document.
function changedDocument(doc, z, form) {
	const next = structuredClone(doc);
	next.zones ||= {};
	const own = { ...next.zones[z.name] };
	if (form.forget) {
		delete next.zones[z.name];
		return next;
	}
	if (z.rules.some((r, i) => i < form.limits.length && form.limits[i] !== r.limit)) own.rules = z.rules.map((r, i) => ruleWith(r, form.limits[i]));
	if (form.shadow !== z.shadow) own.shadow = form.shadow;
	if (!form.enabled) own.enabled = false;
	else if (!z.enabled) delete own.enabled;
	if (Object.keys(own).length) next.zones[z.name] = own;
	else delete next.zones[z.name];
	return next;
}

// difference returns the lines of two texts, those that are only in one marked.
function difference(a, b) {
	const x = a ? a.split("\n") : [], y = b.split("\n");
	let from = 0, ax = x.length, by = y.length;
	while (from < ax && from < by && x[from] === y[from]) from++;
	while (ax > from && by > from && x[ax - 1] === y[by - 1]) { ax--; by--; }
	const p = x.slice(from, ax), q = y.slice(from, by), small = p.length * q.length <= 4e6;
	const common = Array.from({ length: small ? p.length + 1 : 0 }, () => new Uint32Array(q.length + 1));
	for (let i = p.length - 1; small && i >= 0; i--) for (let j = q.length - 1; j >= 0; j--) common[i][j] = p[i] === q[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
	const lines = [];
	for (let i = 0, j = 0; i < p.length || j < q.length;) {
		if (small && i < p.length && j < q.length && p[i] === q[j]) { lines.push(el("span", { textContent: `  ${plain(p[i++])}` })); j++; }
		else if (i < p.length && (!small || j === q.length || common[i + 1][j] >= common[i][j + 1])) lines.push(el("del", { textContent: `- ${plain(p[i++])}` }));
		else lines.push(el("ins", { textContent: `+ ${plain(q[j++])}` }));
	}
	const around = (list) => list.map((l) => el("span", { textContent: `  ${plain(l)}` }));
	return [...around(x.slice(Math.max(0, from - 4), from)), ...lines, ...around(x.slice(ax, ax + 4))];
}

const pretty = (doc) => JSON.stringify(doc, null, 2);
let editing = null; // {zone, doc, tag, lost}

async function showRules(name) {
	$("rules-title").textContent = name === every ? "Switch all zones" : name === asText ? "Edit the document" : `Change zone ${name}`;
	$("rules-form").replaceChildren(el("p", { className: "hint", textContent: "Reading the rules…" }));
	$("rules-answer").replaceChildren();
	if (!$("rules").open) $("rules").showModal();
	try {
		editing = { zone: name, ...await readDocument() };
		if (name === every) everyForm();
		else if (name === asText) textForm();
		else rulesForm(zones.get(name).status);
	} catch (e) {
		$("rules-form").replaceChildren(el("p", { className: "problem", textContent: e.message }));
	}
}

const checkBox = (id, text, on) => el("label", {}, el("input", { type: "checkbox", id, checked: on }), text);
const fields = (legend, ...content) => el("fieldset", {}, el("legend", { className: "unseen", textContent: legend }), ...content);

// formHints say what a change does, and what is unusual about the document.
function formHints() {
	const away = state.live.stores.find((s) => !s.up), all = everyZone(editing.doc);
	const list = [`The change is written to the rule source and holds on all instances that read it, within a second. What is counted stays.${away ? " The store is away: the change may fail." : ""}`];
	if (editing.lost) list.push("Redis has lost the document. The change begins with the one in force, and writes it again.");
	if (editing.zone !== every && editing.zone !== asText && !(all.enabled && !all.shadow)) list.push(`The document has all zones ${all.enabled ? "in shadow" : "off"}, which wins over what it says of this one: see “Switch all zones” in the overview.`);
	return list.map((textContent) => el("p", { className: "hint", textContent }));
}

const showChange = () => el("p", { className: "buttons" }, el("button", { className: "main", textContent: "Show the change" }));

function everyForm() {
	const all = everyZone(editing.doc);
	$("rules-form").replaceChildren(
		el("p", { className: "hint", textContent: "For an incident: this wins over what the configuration and the document say of each zone, and ends with it." }), ...formHints(),
		fields("State of all zones", checkBox("rules-enabled", "on (off lets all requests pass every zone uncounted)", all.enabled), checkBox("rules-shadow", "shadow: every zone reports denials, and none denies", all.shadow)), showChange());
}

function textForm() {
	$("rules-form").replaceChildren(
		...formHints(), el("textarea", { id: "rules-text", rows: 20, spellcheck: false, ariaLabel: "The document, as JSON", value: pretty(editing.lost ? { zones: {} } : editing.doc) }), showChange());
}

function rulesForm(z) {
	const varies = z.rules.some((r) => r.limit_from); // a document cannot take limits from requests
	const limits = z.rules.map((r) => el("label", {}, el("input", { disabled: varies, type: "number", min: 1, max: Number.MAX_SAFE_INTEGER, step: 1, required: true, value: r.limit, className: "limit" }), ` per ${spanOf(r)}, ${algorithmOf(r)}${/^\d+$/.test(r.name) ? "" : ` (${r.name})`}`));
	const own = editing.doc.zones?.[z.name];
	$("rules-form").replaceChildren(
		...formHints(),
		fields("State", checkBox("rules-enabled", "on (off lets all requests pass uncounted)", z.enabled), checkBox("rules-shadow", "shadow: report denials, and deny nothing", z.shadow)),
		fields("Limits", ...(varies ? [el("p", { className: "hint", textContent: "Limits that come from requests are changed in the configuration." })] : []), ...limits.map((l) => el("div", {}, l))),
		...(own ? [el("fieldset", {}, checkBox("rules-forget", "use the configured rules again, as if the document did not name this zone", false))] : []),
		showChange());
	$("rules-forget")?.addEventListener("change", forgetting);
}

const written = () => ({
	forget: Boolean($("rules-forget")?.checked), enabled: $("rules-enabled").checked, shadow: $("rules-shadow").checked,
	limits: [...$("rules-form").querySelectorAll(".limit")].map((i) => Number(i.value)),
});

// forgetting disables the fields that do not count while the configured rules are to be used.
function forgetting(e) {
	const varies = zones.get(editing.zone)?.status.rules.some((r) => r.limit_from);
	for (const i of $("rules-form").querySelectorAll(".limit")) i.disabled = e.target.checked || varies;
	for (const id of ["rules-enabled", "rules-shadow"]) $(id).disabled = e.target.checked;
}

// inShort says in a line what the form changes; empty: nothing that it shows.
function inShort(form) {
	const all = editing.zone === every, z = all ? everyZone(editing.doc) : zones.get(editing.zone).status, list = [];
	if (form.forget) return `${z.name}: to what each instance is configured with: ${(z.configured_rules || z.rules).map(limitOf).join(", ")} here`;
	if (!all) z.rules.forEach((r, i) => { if (form.limits[i] !== r.limit) list.push(`${limitOf(r)} → ${limitOf({ ...r, limit: form.limits[i] })}`); });
	if (form.enabled !== z.enabled) list.push(form.enabled ? "off → on" : "on → off");
	if (form.shadow !== z.shadow) list.push(form.shadow ? "denies → only reports" : "only reports → denies");
	return list.length ? `${all ? "all zones" : z.name}: ${list.join(", ")}` : "";
}

// changed returns the document with the change; null: the zone is gone.
function changed() {
	if (editing.zone === asText) return JSON.parse($("rules-text").value);
	if (editing.zone === every) return changedEvery(editing.doc, written());
	const z = zones.get(editing.zone)?.status;
	return z ? changedDocument(editing.doc, z, written()) : null;
}

// preview checks the change and shows it.
async function preview() {
	const box = $("rules-answer"), { tag, doc, lost } = editing;
	try {
		const next = changed();
		if (!next) throw new Problem("The zone is gone.");
		const before = pretty(lost ? { zones: {} } : doc), after = pretty(next), short = editing.zone === asText ? "" : inShort(written());
		if (before === after) return box.replaceChildren(el("p", { className: "hint", textContent: "Nothing changes." }));
		const v = await ask("rules/validate", { method: "POST", headers: { "Content-Type": "application/json" }, body: after });
		const send = el("button", { type: "button", className: "main", textContent: "Send to all instances", disabled: !v.valid });
		send.addEventListener("click", () => write(after, tag, send, short || "rules edit"));
		box.replaceChildren(el("p", { className: v.valid ? "done" : "problem", textContent: v.valid ? "This instance would take the document." : `Rejected: ${plain(v.error)}` }),
			v.unknown_zones ? el("p", { className: "hint", textContent: `Not checked, because this configuration does not have these zones: ${v.unknown_zones.map(plain).join(", ")}.` }) : "",
			short ? el("p", { className: "short", textContent: short }) : "",
			el("div", { className: "diff", tabIndex: 0, role: "region", "aria-label": "The change of the document" }, ...difference(before, after)), whoAndWhy(), el("p", { className: "buttons" }, send));
	} catch (e) {
		box.replaceChildren(el("p", { className: "problem", textContent: e.message }));
	}
}

async function write(text, tag, send, what) {
	const box = $("rules-answer"), again = el("button", { type: "button", textContent: "Read the rules again" });
	again.addEventListener("click", () => showRules(editing.zone));
	send.disabled = true;
	try {
		await ask(`rules?${saidOf(what)}`, { method: "PUT", headers: { "Content-Type": "application/json", "If-Match": tag }, body: text });
		$("rules-form").replaceChildren();
		box.replaceChildren(el("p", { className: "done", textContent: editing.zone === every ? "Written. The overview says when this instance follows." : "Written. The graph marks when this instance follows." }));
	} catch (e) {
		box.append(el("p", { className: "problem" }, e.status === 412 ? "Nothing was written: somebody else changed the rules meanwhile. " : `Nothing was written: ${e.message} `, again));
	}
}

$("rules-form").addEventListener("submit", (e) => {
	e.preventDefault();
	preview();
});
$("rules-form").addEventListener("input", () => $("rules-answer").replaceChildren()); // what is shown is what is sent
