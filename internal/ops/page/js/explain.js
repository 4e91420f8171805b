// What would be decided about a described request.
function headersIn(text) {
	const headers = {};
	for (const line of text.split("\n").filter((l) => l.trim())) {
		const at = line.indexOf(":");
		if (at < 1) throw new Problem(`“${line.trim()}” is no header: want a name, a colon and a value, such as X-Account: 7.`, 0);
		(headers[line.slice(0, at).trim()] ||= []).push(line.slice(at + 1).trim());
	}
	return headers;
}

function verdict(x) {
	switch (x.decision) {
	case "none": return ["", "No rate limit applies to this request.", "No zone of the handlers that it reaches matches it."];
	case "undecided": return ["", "Undecided: a matcher failed.", "What is after it was not looked at."];
	case "denied": return ["denied", "It would be denied", `by rule ${x.rule} of zone ${x.zone}${becauseOf(x.cause)}${x.retry_after === undefined ? "." : `, and would pass in ${span(x.retry_after)}.`}`];
	}
	return ["allowed", "It would pass.", "No zone denies it."];
}

function explained(x) {
	const [kind, text, more] = verdict(x), list = [el("p", {}, el("span", { className: `verdict ${kind}`, textContent: text }), ` ${more}`)];
	for (const h of x.handlers) {
		if (h.error) list.push(el("p", { className: "problem", textContent: `Server ${h.server}: ${plain(h.error)}` }));
		if (h.not_run) list.push(el("p", { className: "hint", textContent: `Not run before it: ${h.not_run.join(", ")}. What they would change in the request is unknown.` }));
		for (const k of h.zones) {
			list.push(result(k.zone, null, k, "", [], (zone, _, text) => k.key ? el("p", { className: "buttons" }, button("Look at this key", () => showHash(zone, k.key, text))) : ""));
		}
		if (h.not_matching?.length) list.push(el("p", { className: "hint", textContent: `Zones of server ${h.server} that do not match: ${h.not_matching.slice(0, 20).join(", ")}${h.not_matching.length > 20 ? `, and ${h.not_matching.length - 20} more` : ""}.` }));
	}
	return list;
}

$("explain-form").addEventListener("submit", async (e) => {
	e.preventDefault();
	const box = $("explanation"), f = new FormData(e.target);
	try {
		const body = { method: f.get("method").trim() || "GET", url: f.get("url").trim(), client_ip: f.get("client_ip").trim(), headers: headersIn(f.get("headers")) };
		const x = await ask("explain", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
		box.replaceChildren(...explained(x));
	} catch (err) {
		box.replaceChildren(el("p", { className: "problem", textContent: err.message }));
	}
});
$("open-explain").addEventListener("click", () => {
	$("explanation").replaceChildren();
	$("explain").showModal();
});
