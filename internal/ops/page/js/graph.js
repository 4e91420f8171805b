// Graphs, with the limit, and the events that explain them.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesOf = [["allowed", "--allowed"], ["denied", "--denied"], ["shadow_denied", "--would"], ["delayed", "--delayed"], ["shadow_delayed", "--delayed"], ["denied_elsewhere", "--elsewhere"], ["left", "--soft"], ["skipped", "--skipped"], ["fallback", "--fallback"]];
const titles = { allowed: "allowed", denied: "denied", shadow_denied: "would be denied", delayed: "delayed", shadow_delayed: "would be delayed", denied_elsewhere: "denied by another zone", left: "left while they waited", skipped: "not counted", fallback: "decided locally" };
const filled = ["allowed", "denied", "shadow_denied"];

// marksOf returns the marks that concern a zone.
const marksOf = (z) => state.marks.filter((m) => m.kind === "down" || m.kind === "up" ? m.name === z.store : !m.zones || m.zones.includes(z.name));

// outages returns the spans in which a zone's store was away, in seconds.
function outages(z) {
	const spans = [];
	for (const m of marksOf(z)) {
		const at = Date.parse(m.at) / 1000, last = spans[spans.length - 1];
		if (m.kind === "down" && (!last || last[1])) spans.push([at, 0]);
		if (m.kind === "up") {
			if (last && !last[1]) last[1] = at;
			else if (!last) spans.push([0, at]);
		}
	}
	const s = awayOf(z);
	if (s && (!spans.length || spans[spans.length - 1][1])) spans.push([Date.parse(s.since) / 1000, 0]);
	return spans;
}

// drawMarks draws outages as bands and other events as lines.
function drawMarks(u, z) {
	const { ctx, bbox } = u, x = (t) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, u.valToPos(t, "x", true)));
	ctx.save();
	for (const [from, to] of outages(z)) {
		const a = x(from), b = to ? x(to) : bbox.left + bbox.width;
		if (to && to < u.scales.x.min || from > u.scales.x.max) continue;
		ctx.fillStyle = `${color("--fallback")}30`;
		ctx.fillRect(a, bbox.top, Math.max(2, b - a), bbox.height);
	}
	for (const m of marksOf(z)) {
		const t = Date.parse(m.at) / 1000;
		if (m.kind === "down" || m.kind === "up" || t < u.scales.x.min || t > u.scales.x.max) continue;
		ctx.strokeStyle = ctx.fillStyle = color(m.kind === "rules" ? "--rules" : "--soft");
		ctx.lineWidth = devicePixelRatio;
		ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
		ctx.beginPath();
		ctx.moveTo(x(t), bbox.top);
		ctx.lineTo(x(t), bbox.top + bbox.height);
		ctx.stroke();
		ctx.setLineDash([]);
		ctx.beginPath();
		ctx.arc(x(t), bbox.top + 3 * devicePixelRatio, 3 * devicePixelRatio, 0, 7);
		ctx.fill();
	}
	ctx.restore();
}

// drawLimit draws the nearest limit as a line, and names it above the graph, where no curve is. One
// that is far above the graph is only named.
function drawLimit(u, z) {
	const limit = nearestLimit(z);
	if (!limit) return;
	const { ctx, bbox } = u, px = devicePixelRatio, above = limit.rate > u.scales.y.max, y = u.valToPos(limit.rate, "y", true);
	ctx.save();
	ctx.strokeStyle = ctx.fillStyle = color("--limit");
	ctx.lineWidth = 1.5 * px;
	ctx.setLineDash([7 * px, 4 * px]);
	if (!above) {
		ctx.beginPath();
		ctx.moveTo(bbox.left, y);
		ctx.lineTo(bbox.left + bbox.width, y);
		ctx.stroke();
	}
	ctx.font = `${11 * px}px system-ui, sans-serif`;
	ctx.textAlign = "left";
	ctx.textBaseline = "alphabetic"; // uPlot leaves that of its axes
	const { rule } = limit, room = bbox.width - 24 * px, base = bbox.top - 7 * px;
	const texts = [limitText(z, limit) + ofAll(z), `${rule.enforced || rule.limit}/${spanOf(rule)}${perKey(z)}${ofAll(z)}`].map((t) => `${above ? "↑ " : ""}${t}`);
	ctx.beginPath();
	ctx.moveTo(bbox.left, base - 4 * px);
	ctx.lineTo(bbox.left + 18 * px, base - 4 * px);
	ctx.stroke();
	ctx.fillText(texts.find((t) => ctx.measureText(t).width <= room) || texts[1], bbox.left + 24 * px, base);
	ctx.restore();
}

// drawBegin says where the counts of all instances begin. What is lighter before it is this
// instance's past.
function drawBegin(u) {
	if (!inFleet()) return;
	const { ctx, bbox } = u, px = devicePixelRatio, x = fleet.since > u.scales.x.max ? bbox.left + bbox.width : u.valToPos(fleet.since, "x", true);
	if (x < bbox.left + 70 * px) return;
	ctx.save();
	ctx.fillStyle = ctx.strokeStyle = color("--soft");
	ctx.lineWidth = px;
	ctx.beginPath();
	ctx.moveTo(x, bbox.top);
	ctx.lineTo(x, bbox.top + bbox.height);
	ctx.stroke();
	ctx.font = `${11 * px}px system-ui, sans-serif`;
	ctx.textAlign = "right";
	ctx.textBaseline = "alphabetic";
	const room = Math.min(x - bbox.left - 8 * px, bbox.width / 3), texts = [`this instance alone until ${clock(Math.min(fleet.since, reach()))}`, "this instance alone", "this one"];
	const text = texts.find((t) => ctx.measureText(t).width <= room) || "";
	ctx.globalAlpha = .85;
	ctx.fillStyle = color("--card");
	ctx.fillRect(x - 6 * px - ctx.measureText(text).width, bbox.top + 20 * px, ctx.measureText(text).width + 4 * px, 14 * px);
	ctx.globalAlpha = 1;
	ctx.fillStyle = color("--soft");
	ctx.fillText(text, x - 4 * px, bbox.top + 31 * px);
	ctx.restore();
}

// roundTimes returns the round times of a scale, as far apart as their labels need.
function roundTimes(u, _, min, max) {
	const width = u.bbox.width / devicePixelRatio, steps = [5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 14400, 21600];
	const by = steps.find((s) => (max - min) / s <= width / (s < 60 ? 62 : 46)) || 43200, list = [];
	const shift = new Date(max * 1000).getTimezoneOffset() * 60; // whole hours of the clock on the wall
	for (let t = Math.ceil((min - shift) / by) * by + shift; t <= max; t += by) list.push(t);
	return list;
}

const minuteOf = (t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...t % 60 ? { second: "2-digit" } : {}, hour12: false });
const cursors = uPlot.sync("page");

// topOf returns the top of a graph's scale. The limit is in it unless it would press the curves
// flat, or, without any, is so low that its labels would be long.
function topOf(e, max) {
	const limit = nearestLimit(e.status)?.rate || 0;
	if (!max) return limit >= .05 ? limit * 1.18 : 1;
	return Math.max(max, limit <= 4 * max ? limit : 0) * 1.18;
}

// overTime returns the options that all graphs have. top returns the top of the scale, label the label of a value; hover is
// called with the index under the pointer, or null.
function overTime(width, height, hover, top, label) {
	const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
	const select = (u) => {
		const { left, width } = u.select;
		if (width < 5) return;
		u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
		zoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
	};
	return {
		width, height, legend: { show: false },
		cursor: {
			sync: { key: cursors.key, setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
			drag: { x: true, y: false, setScale: false }, y: false, points: { size: 6 }, bind: { dblclick: () => () => go({ from: 0, to: 0 }) },
		},
		scales: { x: { time: true, range: () => [scope().from, scope().to] }, y: { range: (_, __, max) => [0, top(max)] } },
		axes: [{ ...axis, size: 24, splits: roundTimes, values: (_, list) => list.map(minuteOf) }, { ...axis, size: 50, space: 28, values: (_, v) => v.map(label) }],
		hooks: { setCursor: [(u) => hover(u.cursor.idx ?? null)], setSelect: [select] },
	};
}

// plotOptions returns the options of the graph of a zone. seen are the curves that it shows.
function plotOptions(e, seen, before, width, height, hover) {
	const line = ([name, tone]) => ({ label: name, stroke: color(tone), width: filled.includes(name) ? 2 : 1.5, fill: filled.includes(name) ? `${color(tone)}28` : undefined, dash: name === "fallback" || name === "shadow_delayed" ? [4, 4] : undefined, points: { show: false } });
	const light = (c) => ({ label: `${c}, this instance`, stroke: `${color(c === "denied" ? "--denied" : "--allowed")}a0`, width: 1.5, dash: [2, 3], points: { show: false } });
	const all = overTime(width, height, hover, (max) => topOf(e, max), (n) => `${compact(n)}/s`);
	return {
		...all, padding: [nearestLimit(e.status) ? 24 : 8, 20, 0, 0], series: [{}, ...seen.map(line), ...before.map(light)],
		hooks: { ...all.hooks, drawAxes: [(u) => drawMarks(u, e.status)], draw: [(u) => drawLimit(u, e.status), drawBegin] },
	};
}

// Graph is a graph of a zone, as large as its box.
class Graph {
	constructor(box, hover) {
		Object.assign(this, { box, hover, plot: null, seen: "" });
	}

	// draw shows the curves of requests that are not 0, and always that of allowed ones.
	draw(e, all) {
		if (!this.box.clientWidth) return;
		const { i } = scope(), list = seriesOf.filter(([c]) => c === "allowed" || (all || filled.includes(c)) && e.sums[c] > 0);
		const before = inFleet() ? ownCurves.filter((c) => e.own[c]) : [], limited = Boolean(nearestLimit(e.status));
		const data = [ends(i), ...list.map(([c]) => perSecond(e, i, c)), ...before.map((c) => ownBefore(e, c))], seen = [...list.map(([c]) => c), limited, ...before].join();
		this.show(e, seen, data, (width, height) => plotOptions(e, list, before, width, height, this.hover));
	}

	// show shows data. seen says which curves these are: for others, options are asked for again.
	show(e, seen, data, options) {
		const { clientWidth: width, clientHeight: height } = this.box;
		if (this.plot && (this.seen !== seen || this.of !== e)) this.drop();
		if (!this.plot) this.plot = new uPlot(options(width, height), data, this.box);
		else {
			if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
			this.plot.setData(data);
		}
		this.seen = seen;
		this.of = e;
	}

	drop() {
		this.plot?.destroy();
		this.plot = null;
	}
}

// inWords describes the graph of a zone for those who do not see it.
function inWords(e) {
	if (collecting()) return `Requests of zone ${e.status.name}: collecting what all instances count.`;
	const part = (c) => e.sums[c] ? `${whole(e.sums[c])} ${titles[c]}, ${nowText(e, c)} a second now` : `none ${titles[c]}`;
	const limit = nearestLimit(e.status), more = e.sums.shadow_denied ? `; ${part("shadow_denied")}` : "";
	return `Requests of zone ${e.status.name} ${link.to ? `from ${scope().title}` : `in the last ${scope().title}`}: ${part("allowed")}; ${part("denied")}${more}.${limit ? ` The line is the ${limitText(e.status, limit)}${ofAll(e.status)}.` : ""}`;
}
