// Changes as the command line makes them: the API applies edits to the document, the page shows
// the difference, and writes it if the document is still the same.
const whoAndWhy = () => el("p", { className: "buttons" }, el("label", {}, "Who (a claim) ", el("input", { id: "said-who", maxLength: 100, autocomplete: "name" })), el("label", {}, "Why ", el("input", { id: "said-why", maxLength: 200, autocomplete: "off" })));
const saidOf = (what) => new URLSearchParams({ who: $("said-who")?.value || "", why: $("said-why")?.value || "", what });

// applied returns what edits would make of the document.
const applied = (edits) => ask("rules/edit", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(edits) });

// signed returns the document after edits that v shows. An exception keeps who made it and why.
async function signed(edits, v) {
	const who = $("said-who").value, why = $("said-why").value;
	return who || why ? (await applied(edits.map((e) => ({ ...e, who, why })))).after : v.after;
}

// propose shows what edits change.
async function propose(title, edits) {
	const box = $("rules-answer");
	$("rules-title").textContent = title;
	$("rules-form").replaceChildren();
	box.replaceChildren(el("p", { className: "hint", textContent: "Reading the rules…" }));
	if (!$("rules").open) $("rules").showModal();
	editing = { zone: edits[0].zone || every };
	try {
		const v = await applied(edits);
		if (v.before === v.after) return box.replaceChildren(el("p", { className: "hint", textContent: "Nothing changes." }));
		const send = el("button", { type: "button", className: "main", textContent: "Send to all instances", disabled: !v.valid });
		send.addEventListener("click", () => signed(edits, v).then((after) => write(after, v.etag, send, v.what), (e) => box.append(el("p", { className: "problem", textContent: `Nothing was written: ${e.message}` }))));
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

// showChanges lists the changes so far.
async function showChanges() {
	const box = $("rules-answer");
	$("rules-title").textContent = "Changes so far";
	$("rules-form").replaceChildren();
	box.replaceChildren(el("p", { className: "hint", textContent: "Reading…" }));
	if (!$("rules").open) $("rules").showModal();
	try {
		const past = await ask("rules/changes"), list = past.changes || [];
		const rows = list.map((c) => row(cell(when(c.at)), ...[c.who, c.what, c.why].map((t) => cell(plain(t || "–")))));
		box.replaceChildren(list.length ? el("div", { className: "scroll" }, el("table", {}, head("when", "who (a claim)", "what", "why"), el("tbody", {}, ...rows))) : el("p", { className: "hint", textContent: "None was recorded." }),
			past.previous ? el("p", { className: "buttons" }, button("Undo the last change…", () => propose("Undo the last change", [{ do: "undo" }]))) : "");
	} catch (e) {
		box.replaceChildren(el("p", { className: "problem", textContent: e.message }));
	}
}
