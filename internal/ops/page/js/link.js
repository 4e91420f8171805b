// The address: its hash says what is shown, so that a link, reload, back and forward keep it.
// Nothing of it is sent anywhere.
const link = {};
const linkFields = { zone: "", only: "", range: "", from: 0, to: 0, filter: "", sort: "", key: "", part: [], hash: "", all: "" };

function readLink() {
	const q = new URLSearchParams(location.hash.slice(1));
	for (const [name, none] of Object.entries(linkFields)) {
		const text = q.get(name) || "";
		link[name] = Array.isArray(none) ? q.getAll(name) : typeof none === "number" ? Number(text) || 0 : text;
	}
	if (!(link.from < link.to)) link.from = link.to = 0;
}

// addressWith returns the address of what is shown, with changes.
function addressWith(changes) {
	const q = new URLSearchParams();
	for (const [name, value] of Object.entries({ ...link, ...changes })) for (const v of [value].flat()) if (v) q.append(name, v);
	return `#${q}`;
}

// go shows something else. A change that replaces is none to come back from.
function go(changes, replaces = false) {
	const to = addressWith(changes);
	if (to === addressWith({})) return;
	history[replaces ? "replaceState" : "pushState"](null, "", to === "#" ? location.pathname + location.search : to);
	arrive();
}

const noKey = { key: "", part: [], hash: "", all: "" };

// linkTo returns a link that shows something else without loading the page anew.
function linkTo(changes, ...content) {
	const a = el("a", { href: addressWith(changes) }, ...content);
	a.addEventListener("click", (e) => {
		if (e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || e.button) return; // another tab or window
		e.preventDefault();
		go(changes);
	});
	a.addEventListener("pointerdown", () => { a.href = addressWith(changes); }); // what is beside it may have changed
	return a;
}

// arrive shows what the address says.
function arrive() {
	readLink();
	for (const [id, value] of [["filter", link.filter], ["sort", link.sort || "busy"]]) if ($(id).value !== value) $(id).value = value;
	if (!state.live) return;
	chooseFleet();
	askFleet();
	sumUp();
	arriveAtZone();
	arriveAtKey();
	drawAll();
	loadRange();
}
addEventListener("popstate", arrive);

// rangeBar shows the ranges to choose from, and what is zoomed to.
function rangeBar(box) {
	const chosen = ranges.find((r) => r.name === link.range) || fine;
	const list = () => (inFleet() ? [fine] : ranges).map((r) => {
		const b = button(r.title, () => go({ range: r === fine ? "" : r.name, from: 0, to: 0 }));
		b.setAttribute("aria-pressed", String(r === chosen && !link.to));
		b.setAttribute("aria-label", `Show the last ${r.title}`);
		return b;
	});
	const zoomed = link.to ? scope().title : "", zoom = () => zoomed ? [el("span", { className: "zoomed", textContent: zoomed }), button("Reset zoom", () => go({ from: 0, to: 0 }))] : [];
	refill(box, [inFleet(), chosen.name, zoomed], () => [...list(), ...zoom()]);
}

// zoom shows a part of what is shown, as long as a few steps.
function zoom(from, to) {
	const least = 10, end = reach(), middle = (from + to) / 2;
	if (to - from < least) [from, to] = [middle - least / 2, middle + least / 2];
	if (!inFleet() && from <= end - 86400 && to >= end) return go({ range: "24h", from: 0, to: 0 });
	go({ from: Math.round(Math.max(from, end - 86400)), to: Math.round(Math.min(to, end)) });
}

// zoomByKey zooms with + and -, and moves with the arrows.
function zoomByKey(e) {
	const { from, to } = scope(), half = (to - from) / 2, by = { "+": [half / 2, -half / 2], "=": [half / 2, -half / 2], "-": [-half, half], ArrowLeft: [-half, -half], ArrowRight: [half, half] }[e.key];
	if (!by || e.ctrlKey || e.metaKey || e.altKey) return;
	e.preventDefault();
	const end = reach(), over = Math.max(0, to + by[1] - end);
	zoom(from + by[0] - (by[0] === by[1] ? over : 0), to + by[1] - over);
}
