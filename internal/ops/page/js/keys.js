// A key: what is left of its limits, and its reset, in one zone or in all that count by the
// same key.
const zonePath = (name, rest) => `zones/${encodeURIComponent(name)}/${rest}`;
const mostZones = 50; // asked for one look

// confirmed asks before something is changed. lines say what it does, and to whom.
function confirmed(title, lines, yes) {
	$("ask-title").textContent = title;
	$("ask-text").replaceChildren(...lines);
	$("ask-yes").textContent = yes;
	$("ask").returnValue = "";
	$("ask").showModal();
	return new Promise((done) => $("ask").addEventListener("close", () => done($("ask").returnValue === "yes"), { once: true }));
}
$("ask-yes").addEventListener("click", () => $("ask").close("yes"));
$("ask-no").addEventListener("click", () => $("ask").close(""));

// keyParts shows a field for each part of a zone's key.
function keyParts(z, values = []) {
	$("parts").replaceChildren(...z.key.map((k, i) => el("label", {}, `${k}`, el("input", { name: "part", required: true, value: values[i] || "", autocomplete: "off", spellcheck: false }))));
	const n = alike(z.name).length - 1;
	$("key-all-box").hidden = n < 1;
	$("key-all-text").textContent = `also in the ${plural(n, "other zone")} with this key`;
}

const everyName = "*"; // in a link: of all zones
const keyNames = new Map(); // of hashes that were shown by name

// showHash shows the key of a hash in a zone.
function showHash(zone, hash, name) {
	if (name) keyNames.set(hash, name);
	go({ ...noKey, key: zone, hash });
}

// searchKey looks for what is in the filter as a key, in all zones.
const searchKey = () => go({ ...noKey, key: everyName, part: [$("filter").value.trim()].filter(Boolean) });

// searchParts shows the one field of a search.
function searchParts(values) {
	$("parts").replaceChildren(el("label", { className: "wide" }, "Key: an address, an account, or a hash", el("input", { name: "part", required: true, value: values[0] || "", autocomplete: "off", spellcheck: false })));
	$("key-all-box").hidden = true;
}

const fieldsFor = (zone, values) => zone === everyName ? searchParts(values) : keyParts(zones.get(zone).status, values);

// arriveAtKey opens and closes the form for a key as the address says, and looks at the key.
let arrivedAt = "";
function arriveAtKey() {
	const at = JSON.stringify([link.key, link.part, link.hash, link.all]);
	if (at === arrivedAt) return;
	arrivedAt = at;
	if (!link.key) return $("key").close();
	const names = [...zones.keys()].sort(), zone = zones.has(link.key) ? link.key : everyName;
	$("key-zone").replaceChildren(el("option", { value: everyName, textContent: "all zones" }), ...names.map((n) => el("option", { value: n, textContent: n })));
	$("key-zone").value = zone;
	fieldsFor(zone, link.part);
	$("key-all").checked = Boolean(link.all);
	$("answer").replaceChildren();
	if (!$("key").open) $("key").showModal();
	if (link.key !== zone) return $("answer").replaceChildren(el("p", { className: "problem", textContent: `There is no zone ${plain(link.key)}: choose one, or look in all.` }));
	const q = new URLSearchParams(link.hash && zone !== everyName ? { hash: link.hash } : link.part.map((p) => ["part", p]));
	if (![...q].length) $("parts").querySelector("input")?.focus();
	else if (zone === everyName) search(q);
	else look(link.all ? [zone, ...alike(zone).filter((n) => n !== zone)] : [zone], q, keyNames.get(link.hash));
}

// missingText says what counts a request that has not all parts of a zone's key.
function missingText(k) {
	const why = `${k.missing.map(plain).join(" and ")} ${k.missing.length > 1 ? "are" : "is"} empty (key_missing ${k.key_missing})`;
	switch (k.key_missing) {
	case "skip": return `It is not counted, because ${why}.`;
	case "deny": return `It has no key, because ${why}.`;
	case "share": return `It is counted with all others that lack the same, because ${why}.`;
	}
	return `It is counted under ${k.address ? `the client's address ${k.address}` : "one key for all clients whose address is unknown"}, because ${why}.`;
}

// lackingAs is the key of such a request.
const lackingAs = (k) => k.key_missing === "client_ip" ? k.address || "unknown address" : k.parts.map((p) => p || "\"\"").join(" ");
const seenAs = (z, k, name) => k.missing ? lackingAs(k) : k.parts ? k.parts.map((p) => withNetwork(z, p)).join(" ") : name ? withNetwork(z, name) : k.key;

// becauseOf says why a request is denied, unless the rule's limit is used up.
const becauseOf = (cause) => ({
	blocked: ", because the key is blocked", in_flight: ", because too many requests are under way", overload: ", because the upstream has no room", held: ", because requests under way hold the rest",
	too_large: ", because it costs more than the rule's capacity", share: ", because this instance is alone and has used up its share",
	overflow: ", because the zone is full and the key shares a counter", waiting: ", because too many wait", other_zone: " by another zone",
}[cause] || "");

// whyOf says by what a request is denied, and when it passes.
function whyOf(k) {
	const zero = k.rules.some((r) => r.name === k.rule && r.limit === 0);
	if (zero && k.exception) return ": an exception blocks the key";
	if (zero) return ` by rule ${k.rule}, whose limit is 0`;
	const by = k.rule ? ` by rule ${k.rule}${becauseOf(k.cause)}` : k.cause === "other_zone" ? ` in this zone, and is denied${becauseOf(k.cause)}` : "";
	if (k.retry_after !== undefined) return `${by}, and passes in ${span(k.retry_after)}`;
	return k.decision === "denied" && k.cause !== "other_zone" ? `${by}. It never passes with a cost of ${whole(k.cost || 1)}` : by;
}

function keyHead(z, k, name) {
	const where = { shared: "counted in the shared store", local: "counted in this process", fallback: "decided locally, by this instance's share", allow: "the store is away: passes uncounted", deny: "the store is away: answered 503" }[k.mode] || "";
	return el("p", {}, el("span", { className: `verdict ${k.decision}`, textContent: { allowed: "The next request passes", denied: "The next request is denied", skipped: "Requests pass uncounted", shadow_denied: "The next request would be denied (shadow)" }[k.decision] || k.decision }),
		whyOf(k), ". ", where ? `${where[0].toUpperCase()}${where.slice(1)}. ` : "", k.override ? el("span", {}, k.exception ? "Exception " : "Override ", visible(k.override.join(" ")), k.until ? ` until ${when(k.until)}. ` : k.exception ? " until it is ended. " : ". ") : "", k.shared_counter ? "The zone is full: this key shares a counter with others, which is not reset. " : "");
}

function keyRules(k) {
	return el("table", {}, head("rule", "#limit", "#left", "#resets in"), el("tbody", {}, ...k.rules.map((r) => {
		const most = r.remaining + r.used + (r.held || 0), bar = el("span", { className: r.remaining * 5 < most || !most ? "meter low" : "meter", "aria-hidden": "true" }, el("i"));
		bar.firstChild.style.width = `${most ? Math.min(100, Math.max(0, r.remaining / most * 100)) : 0}%`;
		return row(cell(r.name), cell(limitOf(r), true), cell(el("span", {}, whole(r.remaining), bar, r.held ? ` (${whole(r.held)} held)` : ""), true), cell(r.reset_after ? span(r.reset_after) : "unused", true));
	})));
}

// result shows the answer about a key in a zone, with what can be done to it.
function result(zone, q, k, name, all, actions = resets) {
	const z = zones.get(zone)?.status || { ipv4_prefix: 32, ipv6_prefix: 128 };
	const box = el("article", { className: "result" }, el("h3", {}, `${zone}: `, visible(seenAs(z, k, name))), keyHead(z, k, name));
	Object.assign(box.dataset, { zone, key: k.key });
	if (k.missing) box.append(el("p", { className: "hint", textContent: missingText(k) }));
	if (k.place) box.append(el("p", { textContent: `Priority ${plain(k.place.priority)}: ${whole(k.place.in_flight)} of ${whole(k.place.limit)} in flight${k.place.waits ? ", it would wait" : ""}.` }));
	if (k.blocked) box.append(el("p", { className: "out", textContent: `Blocked for ${span(k.blocked)} more. A reset ends the block.` }));
	if (k.key) box.append(el("p", { className: "hint", textContent: `Hash ${k.key}` }));
	if (k.reset) box.append(el("p", { className: "done", textContent: `Reset ${k.reset === "everywhere" ? "on all instances" : k.reset}.` }));
	if (k.error) box.append(el("p", { className: "problem" }, "Not reset everywhere: ", plain(k.error)));
	if (k.rules.length) box.append(keyRules(k));
	box.append(actions(zone, q, seenAs(z, k, name), all, Boolean(k.blocked)), exceptionForm(zone, k));
	return box;
}

const button = (text, run) => {
	const b = el("button", { type: "button", textContent: text });
	b.addEventListener("click", run);
	return b;
};

// resets are the buttons that reset the key of an answer.
function resets(zone, q, text, all, blocked) {
	if (state.live.read_only) return "";
	return el("p", { className: "buttons" }, button(`${blocked ? "Unblock and reset" : "Reset"} in ${zone}…`, () => reset([zone], q, text)), all.length > 1 ? button(`Reset in all ${all.length} zones…`, () => reset(all, q, text)) : "");
}

// each asks about a key in each zone, a few at a time, and shows the answers.
let looking = 0;
async function each(names, q, name, method) {
	const own = ++looking, list = names.slice(0, mostZones), boxes = [];
	$("answer").replaceChildren(el("p", { className: "hint", textContent: "Asking…" }));
	for (let i = 0; i < list.length; i += 4) {
		boxes.push(...await Promise.all(list.slice(i, i + 4).map(async (zone) => {
			try {
				return result(zone, q, await ask(zonePath(zone, `key?${q}`), { method }), name, list);
			} catch (e) {
				return el("p", { className: "problem", textContent: `${zone}: ${e.message}` });
			}
		})));
	}
	if (own !== looking) return; // another key is on screen
	if (names.length > list.length) boxes.push(el("p", { className: "hint", textContent: `Only the first ${mostZones} of ${names.length} zones.` }));
	$("answer").replaceChildren(...boxes);
}

const look = (names, q, name) => each(names, q, name, "GET");

// reset resets the key of an answer, which is the one that the answer shows, whatever stands
// in the form by now.
async function reset(names, q, text) {
	const few = names.slice(0, mostZones), local = few.filter((n) => !storeOf(zones.get(n)?.status || {}));
	const lines = [el("p", {}, "What was counted of the key ", visible(text), ` is reset in ${few.length === 1 ? "this zone" : "these zones"}:`), el("ul", {}, ...few.map((n) => el("li", { textContent: local.includes(n) ? `${n}, in this instance only: its counts are not shared` : `${n}, on all instances` }))), el("p", { textContent: "Its requests can then use the whole limit again, and a block of the key ends. Requests in flight keep their permits. This cannot be undone." })];
	if (await confirmed("Reset this key?", lines, "Reset")) await each(few, q, text, "DELETE");
}

// search shows the zones that have counted a key, the most pressing first.
async function search(q) {
	const own = ++looking, box = $("answer");
	box.replaceChildren(el("p", { className: "hint", textContent: "Asking…" }));
	const list = [];
	try {
		const found = await ask(`keys?${q}${inFleet() ? "&fleet" : ""}`), keys = found.keys.slice(0, mostZones);
		list.push(el("p", {}, keys.length ? `${plural(found.keys.length, "zone")} of ${whole(found.zones)} ${found.keys.length === 1 ? "has" : "have"} counted ` : `None of ${plural(found.zones, "zone")} has counted `, visible(q.get("part")), ". ", keys.length ? "" : "A key is what a zone counts by: spell it as the zone does."));
		for (const k of keys) list.push(result(k.zone, new URLSearchParams({ hash: k.key }), k, k.name, [], (...key) => {
			const p = resets(...key) || el("p", { className: "buttons" });
			p.prepend(linkTo({ zone: k.zone, ...noKey }, `Zone ${k.zone}`));
			return p;
		}));
		for (const d of found.denied_lately || []) [...list].find(({ dataset: of }) => of.zone === d.zone && of.key === d.key)?.querySelector("p").after(el("p", { className: "out", textContent: `Denied about ${plural(d.times, "time")} lately${inFleet() ? " on all instances" : ""}${d.cause ? `: ${d.cause}` : ""}.` }));
		if (found.keys.length > keys.length) list.push(el("p", { className: "hint", textContent: `Only the first ${mostZones} of them.` }));
		if (found.partly_searched) list.push(el("p", { className: "hint", textContent: `Zones whose keys have other parts beside it, and are shown only while they are busy and with log_key: ${found.partly_searched.slice(0, 20).join(", ")}${found.partly_searched.length > 20 ? `, and ${found.partly_searched.length - 20} more` : ""}.` }));
	} catch (e) {
		list.push(el("p", { className: "problem", textContent: e.message }));
	}
	if (own === looking) box.replaceChildren(...list);
}

// As of a zone, another may be open when the event comes.
$("key").addEventListener("close", () => { if (!$("key").open) go(noKey); });
$("key-zone").addEventListener("change", () => {
	const before = [...$("parts").querySelectorAll("input")].map((i) => i.value);
	fieldsFor($("key-zone").value, before);
	$("answer").replaceChildren();
	looking++;
});
$("key-form").addEventListener("submit", (e) => {
	e.preventDefault();
	const zone = $("key-zone").value, part = new FormData(e.target).getAll("part");
	if (zone !== everyName && !zones.has(zone)) return $("answer").replaceChildren(el("p", { className: "problem", textContent: `The zone ${zone} is gone.` }));
	arrivedAt = ""; // the same key is looked at anew
	const to = { ...noKey, key: zone, part, all: $("key-all").checked && !$("key-all-box").hidden ? "1" : "" };
	if (addressWith(to) === addressWith({})) arriveAtKey();
	else go(to);
});
