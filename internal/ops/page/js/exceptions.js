// Exceptions: the keys that block and allow have set apart until a time.
const exceptionsOf = (z) => (z.exceptions || []).filter((x) => !x.until || Date.parse(x.until) > Date.parse(state.live.now));
const doesOf = (x) => x.unlimited ? "unlimited" : x.rules.some((r) => r.limit === 0) ? "blocked" : x.rules.map((r) => `${r.limit}/${durationOf(r.window)}`).join(", ");

// exceptionRow shows one, with a button that ends it.
function exceptionRow(z, x, named) {
	const end = writable() ? [cell(button("End…", () => propose(`End the exception in zone ${z.name}`, [{ do: "unblock", zone: z.name, words: x.key }])))] : [];
	return row(...(named ? [cell(z.name)] : []), cell(el("span", {}, ...x.key.flatMap((p, i) => i ? [" ", visible(p)] : [visible(p)]))), cell(doesOf(x)), cell(x.until ? when(x.until) : "it is ended"), cell(plain(x.who || "–")), cell(plain(x.why || "–")), ...end);
}

const exceptionTitles = (...before) => head(...before, "key", "what", "until", "who (a claim)", "why", ...(writable() ? ["change"] : []));

// zoneExceptions lists those of the zone that is open.
function zoneExceptions(z) {
	const list = exceptionsOf(z), of = JSON.stringify([z.name, list, writable()]);
	$("exceptions-box").hidden = !list.length;
	if ($("exceptions").dataset.of === of) return;
	$("exceptions").dataset.of = of;
	$("exceptions").replaceChildren(exceptionTitles(), el("tbody", {}, ...list.map((x) => exceptionRow(z, x, false))));
}

// showExceptions lists those of all zones.
function showExceptions() {
	const rows = [...zones.values()].map((e) => e.status).flatMap((z) => exceptionsOf(z).map((x) => exceptionRow(z, x, true)));
	$("rules-title").textContent = "Exceptions in force";
	$("rules-form").replaceChildren();
	$("rules-answer").replaceChildren(el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Exceptions" }, el("table", {}, exceptionTitles("zone"), el("tbody", {}, ...rows))));
	if (!$("rules").open) $("rules").showModal();
}
$("open-exceptions").addEventListener("click", showExceptions);

// whyNoException says what keeps the page from blocking or allowing the key of an answer; empty:
// nothing does.
function whyNoException(zone, k) {
	const z = zones.get(zone)?.status;
	if (k.missing || state.live.read_only) return "";
	if (!writable()) return state.live.rules ? `To block or allow a key, change its exceptions where the rules come from: ${plain(state.live.rules.source)}.` : "To block or allow a key, add rules file <path> or, with store redis, rules redis diana:rules to rate_limit in the global options.";
	if (k.parts) return "";
	return z?.log_key ? "Only its hash is known here. To block or allow the key, type its parts above." : "Only its hash is known here, because its handler has no log_key: add log_key to name frequent keys. To block or allow this one, type its parts above.";
}

// exceptionForm blocks or allows the key of an answer for some time, or ends that.
function exceptionForm(zone, k) {
	const why = whyNoException(zone, k), z = zones.get(zone)?.status;
	if (why) return el("p", { className: "hint", textContent: why });
	if (!writable() || k.missing || !z) return "";
	const long = el("input", { "aria-label": "How long, or until when", value: "1h", size: 10, autocomplete: "off" });
	const has = exceptionsOf(z).some((x) => x.key?.join("\n") === k.parts.join("\n"));
	const go = (title, what, ...more) => button(title, () => propose(`${title.slice(0, -1)} in zone ${zone}`, [{ do: what, zone, words: [...k.parts, ...more.map((i) => i.value.trim()).filter(Boolean)] }]));
	return el("p", { className: "buttons" }, go("Block for…", "block", long), go("Allow for…", "allow", long), long, has ? go("End the exception…", "unblock") : "");
}
