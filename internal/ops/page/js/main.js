// drawAll shows what is known.
function drawAll() {
	drawFleet();
	totals();
	legend();
	rangeBar($("ranges"));
	redraw();
	drawZone();
}

function onMessage(m) {
	const first = !state.live;
	problem = null;
	take(m);
	instance(m);
	health(m);
	banners(m);
	announce(m);
	$("state").className = "good";
	$("state").textContent = `live, ${clock(Date.parse(m.now) / 1000)}`;
	$("state").title = "All times on this page are of this instance's clock, in the time zone of this browser.";
	if (first) arrive();
	else drawAll();
	loadRange();
	askFleet();
}

// adviceOn says what to do about a problem.
function adviceOn(e) {
	switch (e.status) {
	case 0: return [el("p", {}, "Is Caddy running? ", el("code", { textContent: "caddy run" }), " starts it, and its log says why it stopped. If it runs, something between it and this browser is down: a proxy, a tunnel, the network.")];
	case 404: return [el("p", { textContent: "A limit for a whole site is one line in its block:" }), sample(), el("p", {}, "Load it with ", el("code", { textContent: "caddy reload" }), ".")];
	case 503: return [el("p", { textContent: "Close pages that nobody looks at." })];
	}
	return [];
}

// lostText says what to do while there is nothing to show because of a problem.
function lostText(e) {
	const none = e.status === 404;
	return [el("h2", { textContent: none ? "No rate limits yet" : "Nothing can be shown now" }), none ? "" : el("p", { className: "problem", textContent: e.message }), ...waitText(e)];
}

const waitText = (e) => [...adviceOn(e), el("p", {}, "The page asks again by itself. ", button("Ask now", restart))];

function onProblem(e) {
	problem = e;
	const since = state.live && clock(Date.parse(state.live.now) / 1000);
	const none = e.status === 404 && !zones.size;
	$("state").className = none ? "" : "bad";
	$("state").textContent = none ? "nothing to show yet" : `${e.message} Trying again.${since ? ` Shown is the state of ${since}.` : ""}`;
	if (since) stale(since);
	$("more").hidden = true;
	if (zones.size) {
		const old = el("p", { textContent: `What is shown is how it was at ${since}.` });
		return $("banners").replaceChildren(el("div", { className: "banner bad" }, el("strong", { textContent: e.message }), old, ...waitText(e)));
	}
	settle("lost");
	showNothing(...lostText(e));
}

const restart = () => follow(onMessage, onProblem);

for (const d of document.querySelectorAll("dialog")) {
	d.querySelector(".close")?.addEventListener("click", () => d.close());
	d.addEventListener("click", (e) => { if (e.target === d && d.id !== "ask") d.close(); }); // beside it
}
$("filter").addEventListener("input", () => { rows = rowsAtFirst; go({ filter: $("filter").value }, true); });
$("sort").addEventListener("change", () => { rows = rowsAtFirst; go({ sort: $("sort").value === "busy" ? "" : $("sort").value }); });
$("find").addEventListener("submit", (e) => {
	e.preventDefault();
	searchKey();
});
$("open-tools").addEventListener("click", () => {
	const open = $("find").classList.toggle("open");
	$("open-tools").setAttribute("aria-expanded", String(open));
});
$("more").firstChild.addEventListener("click", () => { rows += rowsAtFirst; redraw(); });

// Escape closes one dialog. By itself, a browser closes at once all that a link has opened.
const onTop = ["ask", "rules", "key", "explain", "zone"];
addEventListener("keydown", (e) => {
	const top = onTop.map($).find((d) => d.open);
	if (e.key === "Escape" && top) {
		e.preventDefault();
		top.close("");
	}
});
addEventListener("keydown", (e) => {
	if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || e.target.closest("input, textarea, select") || $("find").hidden) return;
	e.preventDefault();
	$("filter").focus();
	$("filter").select();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
	for (const c of shown.values()) c.parts.graph.drop();
	dropGraphs();
	if (state.live) drawAll();
});
addEventListener("resize", () => { if (state.live) drawAll(); });
document.addEventListener("visibilitychange", restart);
arrive();
restart();
