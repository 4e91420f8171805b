// The places of a zone with in_flight adaptive: the limit, what is in flight and what waits. Each instance has its own.
const placesGraph = new Graph($("places-plot"), (at) => zoneValues(at));
const waitTones = ["--delayed", "--elsewhere", "--would", "--rules", "--fallback", "--denied", "--skipped", "--soft"]; // by priority

// meansOf returns a curve of places in the steps of a range: null where nobody has sampled them.
function meansOf(e, i, name) {
	const lists = inFleet() ? e.own : e.counts[i], shift = inFleet() ? fine.head - own.head : 0;
	const samples = lists[placesCurve("samples")], list = lists[placesCurve(name)];
	return ends(i).map((_, k) => samples?.[k + shift] ? (list?.[k + shift] || 0) / samples[k + shift] : null);
}

// placesCurves returns the title, values and tone of each curve. Of the priorities, these are those of which some waited.
function placesCurves(e, i) {
	const { priority, classes = [..."01234567"] } = e.status.in_flight_adaptive;
	const waiting = classes.map((n, band) => [priority ? `waiting ${plain(n)}` : "waiting", meansOf(e, i, waitingFor(n)), waitTones[band]]).filter(([, list]) => list.some((n) => n));
	return [["limit", meansOf(e, i, "limit"), "--limit"], ["in flight", meansOf(e, i, "in flight"), "--allowed"], ...waiting];
}

// meanText is the mean of what is known of values.
function meanText(values) {
	const known = values.filter((n) => n !== null);
	return known.length ? compact(Math.round(known.reduce((a, b) => a + b, 0) / known.length * 10) / 10) : "–";
}

// lastOf is the last value that is known.
const lastOf = (list) => list.slice(list.findLastIndex((n) => n !== null)).slice(0, 1);

function placesOptions(e, list, width, height, hover) {
	const line = ([name, , tone]) => ({ label: name, stroke: color(tone), width: 2, fill: name === "in flight" ? `${color(tone)}28` : undefined, dash: name === "limit" ? [7, 4] : undefined, points: { show: false } });
	return { ...overTime(width, height, hover, (max) => (max || 1) * 1.1, compact), padding: [8, 20, 0, 0], series: [{}, ...list.map(line)] };
}

function drawPlaces(e) {
	$("places").hidden = !e.status.in_flight_adaptive;
	if ($("places").hidden) return placesGraph.drop();
	const { i } = scope(), [limit, ...others] = placesCurves(e, i), list = [...others, limit]; // the limit is drawn over the others
	$("places-of").textContent = inFleet() ? "in this instance; each has its own limit" : "in this instance, on average of each step";
	placesGraph.show(e, list.map(([c]) => c).join(), [ends(i), ...list.map(([, values]) => values)], (width, height) => placesOptions(e, list, width, height, placesGraph.hover));
}

// placesValues says what the curves are at a step; null: now.
function placesValues(e, at) {
	const { i } = scope();
	$("places-values").replaceChildren(...placesCurves(e, i).map(([name, list, tone]) => {
		const dot = el("i", { className: name === "limit" ? "dot limit" : "dot" });
		if (name !== "limit") dot.style.background = color(tone);
		return el("span", {}, dot, `${name} `, el("b", { textContent: meanText(at === null ? lastOf(list) : [list[at] ?? null]) }));
	}));
}

const moveText = (m) => `${m.to} at ${when(m.at)}, from ${whole(m.from)} to ${whole(m.limit)}: ${plain(m.why)}`;

// placesNow says what the limit last did and why, and shows the places of all instances.
function placesNow(z, open) {
	if (!z.in_flight_adaptive) return;
	const p = open.places, all = inFleet() && fleet.answer?.zones.find((o) => o.name === z.name)?.places_of_all || [], members = fleet.answer?.fleet.members || [];
	$("places-move").textContent = `The limit is from ${whole(p.min)} to ${whole(p.max)}. ${p.last_move ? `Its last move: ${moveText(p.last_move)}.` : "It has not moved yet."}`;
	const waiting = (a) => Object.values(a.waiting || {}).reduce((sum, n) => sum + n, 0), name = (a) => { const m = members.find((m) => m.id === a.id); return m ? nameOf(m, members) : plain(a.host); };
	$("places-members").replaceChildren(...(all.length ? [head("instance", "#limit", "#in flight", "#waiting", "last move"), el("tbody", {}, ...all.map((a) => row(cell(name(a)), cell(whole(a.limit), true), cell(whole(a.in_flight), true), cell(whole(waiting(a)), true), cell(a.last_move ? moveText(a.last_move) : "none yet"))))] : []));
}

// placesInWords describes the graph for those who do not see it.
function placesInWords(e) {
	return e.status.in_flight_adaptive ? `Places of zone ${e.status.name} in this instance now: ${placesCurves(e, scope().i).map(([name, list]) => `${name} ${meanText(lastOf(list))}`).join("; ")}.` : "";
}
