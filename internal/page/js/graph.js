// Graphs of the last minutes, with the events that explain them.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesOf = [["allowed", "--allowed"], ["denied", "--denied"], ["shadow_denied", "--would"], ["delayed", "--delayed"], ["denied_elsewhere", "--elsewhere"], ["skipped", "--skipped"], ["fallback", "--fallback"]];
const titles = { allowed: "allowed", denied: "denied", shadow_denied: "would be denied (shadow)", delayed: "delayed", denied_elsewhere: "denied by another zone", skipped: "not counted", fallback: "decided locally" };
const main = ["allowed", "denied", "shadow_denied"]; // shown on cards, too
const isSeen = (e, c) => c === "allowed" || c === "denied" || e.sums[c] > 0;
const markNames = { started: "Caddy started", reload: "configuration loaded", rules: "rules changed", down: "store away", up: "store back" };

// marksOf returns the marks that concern a zone.
function marksOf(z) {
	return (state.live ? state.live.marks : []).filter((m) => m.kind === "down" || m.kind === "up" ? m.name === z.store : !m.zones || m.zones.includes(z.name));
}

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

// everyMinute returns the whole minutes of a scale, as far apart as their labels need.
function everyMinute(u, _, min, max) {
	const room = u.bbox.width / devicePixelRatio / ((max - min) / 60); // pixels a minute
	const by = 60 * Math.max(1, Math.ceil(44 / room)), list = [];
	for (let t = Math.ceil(min / by) * by; t <= max; t += by) list.push(t);
	return list;
}

const minuteOf = (t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
const cursors = uPlot.sync("page");

// plotOptions returns the options of the graph of a zone. seen are the curves that it shows,
// hover is called with the index under the pointer, or null.
function plotOptions(e, seen, width, height, hover) {
	const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
	const line = ([name, tone]) => ({ label: name, stroke: color(tone), width: main.includes(name) ? 2 : 1.5, fill: main.includes(name) ? `${color(tone)}28` : undefined, dash: name === "fallback" ? [4, 4] : undefined, points: { show: false } });
	return {
		width, height, legend: { show: false }, padding: [8, 20, 0, 0],
		cursor: { sync: { key: cursors.key, setSeries: false }, drag: { x: false, y: false }, y: false, points: { size: 6 } },
		scales: { x: { time: true, range: () => [(state.head + 1 - kept) * state.step, (state.head + 1) * state.step] }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.15)] } },
		axes: [{ ...axis, size: 24, splits: everyMinute, values: (_, list) => list.map(minuteOf) }, { ...axis, size: 44, space: 28, values: (_, v) => v.map((n) => `${compact(n)}/s`) }],
		series: [{}, ...seen.map(line)],
		hooks: { drawAxes: [(u) => drawMarks(u, e.status)], setCursor: [(u) => hover(u.cursor.idx ?? null)] },
	};
}

// Graph is the graph of a zone in a box. It shows the curves that are not 0, and always
// those of allowed and denied requests.
class Graph {
	constructor(box, height, hover) {
		Object.assign(this, { box, height, hover, plot: null, seen: "" });
	}

	draw(e, all) {
		const width = this.box.clientWidth;
		if (!width) return;
		const list = seriesOf.filter(([c]) => (all || main.includes(c)) && isSeen(e, c));
		const data = [ends(), ...list.map(([c]) => perSecond(e[c]))], seen = list.map(([c]) => c).join();
		if (this.plot && (this.seen !== seen || this.of !== e)) this.drop();
		if (!this.plot) this.plot = new uPlot(plotOptions(e, list, width, this.height, this.hover), data, this.box);
		else {
			if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
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
	const part = (c) => e.sums[c] ? `${whole(e.sums[c])} ${titles[c]}, ${compact(now(e, c))} a second now` : `none ${titles[c]}`;
	const most = Math.max(...e.allowed.map((n, i) => n + e.denied[i] + e.shadow_denied[i])) / state.step;
	return `Requests of zone ${e.status.name} in the last five minutes: ${main.filter((c) => isSeen(e, c)).map(part).join("; ")}; at most ${compact(most)} a second.`;
}
