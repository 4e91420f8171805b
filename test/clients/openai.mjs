// Asks a language model by the openai library, and prints the usage that it was told: of an answer,
// and, without another argument, of a stream. With one it says that it is ready, and asks after a line
// of its input.
import OpenAI from "openai";

const [base, once] = process.argv.slice(2);
if (once) await new Promise((resume) => { console.error("ready"); process.stdin.once("data", resume).once("end", resume); });
const client = new OpenAI({ apiKey: "key", baseURL: `${base}/v1` });
const ask = { model: "small", max_tokens: 6, messages: [{ role: "user", content: "one two three four" }] };
const print = (usage) => console.log(usage.prompt_tokens + usage.completion_tokens);

print((await client.chat.completions.create(ask)).usage);
if (!once) {
	const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
	for await (const chunk of stream) if (chunk.usage) print(chunk.usage);
}
process.stdin.destroy();
