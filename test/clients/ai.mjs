// Asks a language model by the library ai, as openai.mjs does.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const [base, once] = process.argv.slice(2);
if (once) await new Promise((resume) => { console.error("ready"); process.stdin.once("data", resume).once("end", resume); });
const model = createOpenAI({ apiKey: "key", baseURL: `${base}/v1` }).chat("small");
const ask = { model, maxOutputTokens: 6, prompt: "one two three four" };
const print = (usage) => console.log(usage.inputTokens + usage.outputTokens);

print((await generateText(ask)).usage);
if (!once) {
	const stream = streamText(ask);
	for await (const _ of stream.textStream);
	print(await stream.usage);
}
process.stdin.destroy();
