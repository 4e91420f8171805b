// Many zones as a table, with the course of each as a strip.
let table = null; // {box, body, rows: name → row}
const bars = 75; // of a strip

const columns = [["zone", ""], ["over time", "wide"], ["allowed/s", "number"], ["denied/s", "number"], ["denied", "number"], ["would be denied", "number"], ["limits", "wide"]];

function newTable() {
	const body = el("tbody"), caption = el("caption", { className: "unseen" });
	const titles = columns.map(([title, kind]) => { const c = cell(title, false, "th"); c.className = kind; return c; });
	const box = el("div", { className: "many scroll-x", tabIndex: 0, role: "region", "aria-label": "Zones" }, el("table", {}, caption, el("thead", {}, row(...titles)), body));
	$("zones").append(box);
	return { box, body, caption, titles, rows: new Map() };
}

function dropTable() {
	table?.box.remove();
	table = null;
}

const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };

function newRow(name) {
	const cells = columns.slice(1).map(([, kind]) => el("td", { className: kind })), badges = el("span", { className: "badges" });
	const strip = el("canvas", { width: bars * 2, height: 22, "aria-hidden": "true" });
	cells[0].append(strip);
	const tr = row(el("th", { scope: "row" }, linkTo({ zone: name }, name), " ", badges), ...cells);
	tr.dataset.zone = name;
	return Object.assign(tr, { cells_: cells, badges, strip });
}

// shareOf is a curve's part of what a zone decided in the time that is shown.
function shareOf(e, curve) {
	if (collecting()) return "…";
	const all = e.sums.allowed + e.sums.denied + e.sums.shadow_denied;
	return all ? `${(e.sums[curve] / all * 100).toFixed(1)} %` : "–";
}

// drawStrip draws the course of a zone: what was allowed, and above it what was denied or would
// be.
function drawStrip(canvas, e, tones) {
	const { i, from, to } = scope(), r = ranges[i], first = r.head - r.kept + 1, ctx = canvas.getContext("2d");
	const lists = ["allowed", "denied", "shadow_denied"].map((c) => e.counts[i][c]), sums = lists.map(() => new Float64Array(bars));
	let most = 0;
	for (let k = 0; k <= r.kept; k++) {
		const at = Math.floor(((first + k) * r.step - from) / (to - from) * bars);
		if (at < 0 || at >= bars) continue;
		lists.forEach((list, n) => { if (list) sums[n][at] += list[k]; });
		most = Math.max(most, sums[0][at] + sums[1][at] + sums[2][at]);
	}
	ctx.clearRect(0, 0, canvas.width, canvas.height);
	if (!most) return;
	const scale = canvas.height / most, bar = (n, x, from) => {
		const h = sums[n][x] * scale;
		ctx.fillStyle = tones[n];
		ctx.fillRect(x * 2, canvas.height - from - h, 2, h);
		return h;
	};
	for (let x = 0; x < bars; x++) for (let n = 0, h = 0; n < sums.length; n++) h += bar(n, x, h);
}

// drawTable shows zones as rows, in order.
function drawTable(names) {
	table ||= newTable();
	const over = scope().title, tones = ["--allowed", "--denied", "--would"].map(color);
	put(table.caption, `Zones, with the counts ${link.to ? `from ${over}` : `of the last ${over}`}`);
	[["denied", 4], ["would be denied", 5]].forEach(([c, at]) => put(table.titles[at], `${c}, ${over}`));
	const wanted = new Set(names);
	for (const [name, tr] of table.rows) if (!wanted.has(name)) { tr.remove(); table.rows.delete(name); }
	table.box.classList.toggle("no-shadow", !names.some((n) => zones.get(n).sums.shadow_denied));
	names.forEach((name, k) => {
		const e = zones.get(name), z = e.status, share = enforcedOf(z);
		let tr = table.rows.get(name);
		if (!tr) table.rows.set(name, tr = newRow(name));
		if (table.body.children[k] !== tr && !tr.contains(document.activeElement)) table.body.insertBefore(tr, table.body.children[k] || null);
		const badges = badgesOf(z);
		if (tr.badges.textContent !== badges.map((b) => b.textContent).join("")) tr.badges.replaceChildren(...badges);
		[nowText(e, "allowed"), nowText(e, "denied"), shareOf(e, "denied"), e.sums.shadow_denied || z.shadow ? shareOf(e, "shadow_denied") : "", share.length ? `now ${share.join("; ")}` : [rulesOf(z).join(", ") || "no rules", costOfZone(e)].filter(Boolean).join(" · ")].forEach((text, n) => put(tr.cells_[n + 1], text));
		tr.cells_[2].classList.toggle("denied", now(e, "denied") > 0);
		tr.cells_[3].classList.toggle("denied", e.sums.denied > 0);
		drawStrip(tr.strip, e, tones);
	});
}
