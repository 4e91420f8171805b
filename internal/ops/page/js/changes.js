// Changes as the command line makes them: the API applies edits to the document, the page shows
// the difference, and writes it if the document is still the same.
const whoAndWhy = () => el("p", { className: "buttons" }, el("label", {}, "Who (a claim) ", el("input", { id: "said-who", maxLength: 100, autocomplete: "name" })), el("label", {}, "Why ", el("input", { id: "said-why", maxLength: 200, autocomplete: "off" })));
const saidOf = (what) => new URLSearchParams({ who: $("said-who")?.value || "", why: $("said-why")?.value || "", what });

// propose shows what edits change.
async function propose(title, edits) {
	const box = $("rules-answer");
	$("rules-title").textContent = title;
	$("rules-form").replaceChildren();
	box.replaceChildren(el("p", { className: "hint", textContent: "Reading the rules…" }));
	if (!$("rules").open) $("rules").showModal();
	editing = { zone: edits[0].zone || every };
	try {
		const v = await ask("rules/edit", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(edits) });
		if (v.before === v.after) return box.replaceChildren(el("p", { className: "hint", textContent: "Nothing changes." }));
		const send = el("button", { type: "button", className: "main", textContent: "Send to all instances", disabled: !v.valid });
		send.addEventListener("click", () => write(v.after, v.etag, send, v.what));
		box.replaceChildren(el("p", { className: v.valid ? "done" : "problem", textContent: v.valid ? "This instance would take the document." : `Rejected: ${plain(v.error)}` }), el("p", { className: "short", textContent: plain(v.what) }), v.note ? el("p", { className: "hint", textContent: v.note }) : "",
			el("div", { className: "diff", tabIndex: 0, role: "region", "aria-label": "The change of the document" }, ...difference(v.before, v.after)), whoAndWhy(), el("p", { className: "buttons" }, send));
	} catch (e) {
		box.replaceChildren(el("p", { className: "problem", textContent: e.message }));
	}
}

// setForm changes the rate, window, burst or block of a rule.
function setForm(z) {
	const rule = el("select", { "aria-label": "Rule", hidden: z.rules.length < 2 }, ...z.rules.map((r) => el("option", { value: r.name, textContent: r.name })));
	const words = el("input", { "aria-label": "Rate, with burst and block", placeholder: "200/1m burst 40 block 1h", required: true, autocomplete: "off", spellcheck: false });
	const form = el("form", { className: "buttons", hidden: !z.rules.length }, rule, words, el("button", { textContent: "Set…" }));
	form.addEventListener("submit", (e) => {
		e.preventDefault();
		propose(`Set a rule of zone ${z.name}`, [{ do: "set", zone: z.name, words: [rule.value, ...words.value.trim().split(/\s+/)] }]);
	});
	return form;
}

// exceptionForm blocks or allows the key of an answer for some time, or ends that.
function exceptionForm(zone, k) {
	if (!writable() || !k.parts || k.missing) return "";
	const long = el("input", { "aria-label": "How long, or until when", value: "1h", size: 10, autocomplete: "off" });
	const has = zones.get(zone)?.status.exceptions?.some((x) => x.key?.join("\n") === k.parts.join("\n"));
	const go = (title, what, ...more) => button(title, () => propose(`${title.slice(0, -1)} in zone ${zone}`, [{ do: what, zone, words: [...k.parts, ...more.map((i) => i.value.trim()).filter(Boolean)] }]));
	return el("p", { className: "buttons" }, go("Block for…", "block", long), go("Allow for…", "allow", long), long, has ? go("End the exception…", "unblock") : "");
}

// showChanges lists the changes so far.
async function showChanges() {
	const box = $("rules-answer");
	$("rules-title").textContent = "Changes so far";
	$("rules-form").replaceChildren();
	box.replaceChildren(el("p", { className: "hint", textContent: "Reading…" }));
	if (!$("rules").open) $("rules").showModal();
	try {
		const past = await ask("rules/changes"), list = past.changes || [];
		const rows = list.map((c) => row(cell(new Date(c.at).toLocaleString()), ...[c.who, c.what, c.why].map((t) => cell(plain(t || "–")))));
		box.replaceChildren(list.length ? el("div", { className: "scroll" }, el("table", {}, head("when", "who (a claim)", "what", "why"), el("tbody", {}, ...rows))) : el("p", { className: "hint", textContent: "None was recorded." }),
			past.previous ? el("p", { className: "buttons" }, button("Undo the last change…", () => propose("Undo the last change", [{ do: "undo" }]))) : "");
	} catch (e) {
		box.replaceChildren(el("p", { className: "problem", textContent: e.message }));
	}
}
