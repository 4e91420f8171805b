// Asks a language model by the library @anthropic-ai/sdk, as openai.mjs does.
import Anthropic from "@anthropic-ai/sdk";

const [base, once] = process.argv.slice(2);
if (once) await new Promise((resume) => { console.error("ready"); process.stdin.once("data", resume).once("end", resume); });
const client = new Anthropic({ apiKey: "key", baseURL: base });
const ask = { model: "small", max_tokens: 6, messages: [{ role: "user", content: "one two three four" }] };
const print = (usage) => console.log(usage.input_tokens + usage.output_tokens);

print((await client.messages.create(ask)).usage);
if (!once) print((await client.messages.stream(ask).finalMessage()).usage);
process.stdin.destroy();
