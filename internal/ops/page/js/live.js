// The page asks the API beside it, and follows one stream of messages.
const base = location.origin + location.pathname; // the page's own address may hold a password, with which nothing can be fetched

class Problem extends Error {
	constructor(message, status) {
		super(message);
		this.status = status;
	}
}

const noAnswer = "Caddy does not answer.";

// hint says what to do about an answer of that status.
function hint(status) {
	switch (status) {
	case 401: return "Reload the page and log in again.";
	case 403: return `Caddy's admin endpoint rejects this page. Add this line to its block \`admin\`: origins ${originsLine()}`;
	case 404: return "";
	case 502: case 504: return "The proxy in front of Caddy cannot reach it.";
	}
	return "";
}

// originsLine are the origins with which the page opens by each name that this machine has for itself.
function originsLine() {
	const local = ["localhost", "127.0.0.1", "[::1]"], port = location.port ? `:${location.port}` : "";
	return [...local.includes(location.hostname) ? local.map((h) => h + port) : [location.host], '""'].join(" ");
}

// ask sends a request and returns the JSON of the answer.
async function ask(path, options = {}) {
	let r;
	try {
		r = await fetch(new URL(path, base), { cache: "no-store", ...options });
	} catch (e) {
		if (e.name === "AbortError") throw e;
		throw new Problem(noAnswer, 0);
	}
	return answerOf(r);
}

async function answerOf(r) {
	const text = await r.text();
	let body;
	try {
		body = JSON.parse(text);
	} catch {
		const kind = (r.headers.get("Content-Type") || "").split(";")[0] || "no type";
		throw new Problem(`The answer is not from Diana: status ${r.status}, ${kind}, where JSON was expected. ${hint(r.status) || "A proxy or a login page may be in between."}`, r.status);
	}
	if (!r.ok) throw new Problem([plain(body.error || `Caddy answers status ${r.status}.`), hint(r.status)].filter(Boolean).join(" "), r.status);
	if (body === null || typeof body !== "object") throw new Problem("The answer is not from Diana: JSON of another kind.", r.status);
	body.etag = r.headers.get("ETag") || body.etag;
	return body;
}

const silence = 10000; // ms without a message after which the stream is given up
let stream = null, polls = false, retry = 0, wait = 1000;

function query(once) {
	const q = new URLSearchParams({ since: inFleet() ? own.head : fine.head, have: state.version });
	if (state.open) q.set("open", state.open);
	if (once) q.set("once", "");
	return `live?${q}`;
}

// follow follows the stream until it ends, and then asks for another. A page that is not
// shown has none.
async function follow(onMessage, onProblem) {
	clearTimeout(retry);
	stream?.abort();
	if (document.hidden) return;
	const own = stream = new AbortController();
	let got = 0;
	try {
		if (polls) {
			onMessage(await ask(query(true), { signal: own.signal }));
			got++;
		} else {
			await read(own, (m) => { got++; wait = 1000; onMessage(m); });
		}
		wait = polls ? silence : 250;
	} catch (e) {
		if (own !== stream) return; // another was started
		if (e.name === "AbortError" || e instanceof TypeError) {
			polls = polls || own.silent && got === 0; // a proxy holds the messages back
			if (!own.silent && got === 0) onProblem(new Problem(noAnswer, 0));
			else wait = 250;
		} else onProblem(e);
		wait = Math.min(wait * 2, 15000);
	}
	if (own === stream) retry = setTimeout(() => follow(onMessage, onProblem), wait);
}

// read calls onMessage for each message of a stream until it ends.
async function read(own, onMessage) {
	let timer = 0;
	const alive = () => {
		clearTimeout(timer);
		timer = setTimeout(() => { own.silent = true; own.abort(); }, silence);
	};
	alive();
	try {
		const r = await fetch(new URL(query(false), base), { cache: "no-store", signal: own.signal, headers: { Accept: "text/event-stream" } });
		if (!r.ok || !(r.headers.get("Content-Type") || "").startsWith("text/event-stream")) {
			await answerOf(r);
			throw new Problem("The answer is not from Diana: JSON where a stream was expected.", r.status);
		}
		const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let text = ""; ;) {
			const { value, done } = await reader.read();
			if (done) return;
			text += value;
			for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
				alive();
				const m = JSON.parse(text.slice(text.indexOf("data: ") + 6, end));
				text = text.slice(end + 2);
				onMessage(m);
			}
		}
	} finally {
		clearTimeout(timer);
	}
}
