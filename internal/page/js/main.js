function onMessage(m) {
	take(m);
	instance(m);
	health(m);
	banners(m);
	announce(m);
	totals();
	redraw();
	drawZone();
	$("state").className = "good";
	$("state").textContent = `live, ${clock(Date.parse(m.now) / 1000)}`;
}

function onProblem(e) {
	$("state").className = "bad";
	$("state").textContent = `${e.message} Trying again.${state.live ? ` Shown is the state of ${clock(Date.parse(state.live.now) / 1000)}.` : ""}`;
	if (!state.live) $("zones").replaceChildren(el("div", { className: "empty" }, el("p", { className: "problem", textContent: e.message }), el("p", { textContent: "The page asks again by itself." })));
}

const restart = () => follow(onMessage, onProblem);

for (const d of document.querySelectorAll("dialog")) {
	d.querySelector(".close")?.addEventListener("click", () => d.close());
	d.addEventListener("click", (e) => { if (e.target === d && d.id !== "ask") d.close(); }); // beside it
}
const again = () => { cards = cardsAtFirst; redraw(); };
$("filter").addEventListener("input", again);
$("sort").addEventListener("change", again);
$("find").addEventListener("submit", (e) => e.preventDefault());
$("more").firstChild.addEventListener("click", () => { cards += cardsAtFirst; redraw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
	for (const c of shown.values()) c.parts.graph.drop();
	zoneGraph.drop();
	redraw();
	drawZone();
});
addEventListener("resize", () => { redraw(); drawZone(); });
document.addEventListener("visibilitychange", restart);
legend();
restart();
