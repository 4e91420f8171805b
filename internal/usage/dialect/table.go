// Package dialect knows how the responses of language models tell the tokens that they took. All of
// it is data: a provider is a row of the table.
package dialect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/usage/scan"
)

// A row is one way to tell usage.
type row struct {
	format string // what tokens calls it
	places string // of the objects with the members, in JSON; . is the top

	input   string // names of one number: the first that is there counts
	cached  string // read from a cache
	written string // written to a cache
	output  string
	total   string // of input and output

	moreInput, moreOutput string // beside input and output
	beside                bool   // cached and written are beside the input, not part of it; the total may say otherwise
	other                 string // tells that no tokens were used
	needs                 string // a member without which the row is another's
	parts                 string // an array of objects with the same members, whose sum is what was used

	outside bool // moreInput and moreOutput are not in the total

	text string // places of the text of streams
}

var rows = []row{
	{ // chat and text completions, also of xAI, OpenRouter, vLLM, Mistral, Azure, DeepSeek, Moonshot, Groq, embeddings
		format: "openai", places: "usage choices.[].usage x_groq.usage",
		input: "prompt_tokens", output: "completion_tokens", total: "total_tokens",
		cached:  "prompt_tokens_details.cached_tokens prompt_cache_hit_tokens cached_tokens cache_read_input_tokens",
		written: "prompt_tokens_details.cache_write_tokens prompt_tokens_details.cache_creation_tokens cache_write_tokens cache_creation_input_tokens",
		text: "choices.[].delta.content choices.[].delta.content.[].text choices.[].delta.reasoning_content choices.[].delta.reasoning choices.[].delta.refusal" +
			" choices.[].delta.tool_calls.[].function.arguments choices.[].delta.tool_calls.[].function.name choices.[].delta.function_call.arguments" +
			" choices.[].delta.audio.data choices.[].text text",
	},
	{ // Perplexity: what it read and thought is billed beside the total
		format: "openai", places: "usage", needs: "citation_tokens", outside: true,
		input: "prompt_tokens", moreInput: "citation_tokens", output: "completion_tokens", moreOutput: "reasoning_tokens", total: "total_tokens",
	},
	{ // responses, images, transcriptions, and DashScope
		format: "openai", places: "usage response.usage",
		input: "input_tokens", output: "output_tokens", total: "total_tokens",
		cached:  "input_tokens_details.cached_tokens",
		written: "input_tokens_details.cache_write_tokens",
		text:    "delta b64_json audio output.text output.choices.[].message.content",
	},
	{ // messages
		format: "anthropic", places: "usage message.usage", parts: "iterations",
		input: "input_tokens", output: "output_tokens",
		cached: "cache_read_input_tokens", written: "cache_creation_input_tokens", beside: true,
		text: "delta.text delta.partial_json delta.thinking delta.content",
	},
	{ // Gemini and Vertex
		format: "gemini", places: "usageMetadata",
		input: "promptTokenCount", moreInput: "toolUsePromptTokenCount", output: "candidatesTokenCount", moreOutput: "thoughtsTokenCount", total: "totalTokenCount",
		cached: "cachedContentTokenCount",
		text:   "candidates.[].content.parts.[].text candidates.[].content.parts.[].functionCall.name candidates.[].content.parts.[].inlineData.data",
	},
	{ // Gemini's as its libraries for Python have it
		format: "gemini", places: "usage_metadata",
		input: "prompt_token_count", moreInput: "tool_use_prompt_token_count", output: "candidates_token_count", moreOutput: "thoughts_token_count", total: "total_token_count",
		cached: "cached_content_token_count",
	},
	{ // Gemini's interactions
		format: "gemini", places: "usage interaction.usage",
		input: "total_input_tokens", moreInput: "total_tool_use_tokens", output: "total_output_tokens", moreOutput: "total_thought_tokens", total: "total_tokens",
		cached: "total_cached_tokens",
		text:   "delta.text delta.thought delta.data delta.content.text delta.arguments",
	},
	{
		format: "ollama", places: ".",
		input: "prompt_eval_count", output: "eval_count",
		cached: "prompt_eval_cached_count",
		text:   "message.content message.thinking message.tool_calls.[].function.name response thinking",
	},
	{ // Cohere, whose rerank counts searches
		format: "cohere", places: "usage.billed_units delta.usage.billed_units meta.billed_units response.meta.billed_units",
		input: "input_tokens", output: "output_tokens", other: "search_units",
		text: "delta.message.content.text delta.message.content.thinking delta.message.tool_plan delta.message.tool_calls.function.arguments text",
	},
	{ // Bedrock's Converse
		format: "bedrock", places: "usage metadata.usage",
		input: "inputTokens", output: "outputTokens", total: "totalTokens",
		cached: "cacheReadInputTokens", written: "cacheWriteInputTokens", beside: true,
		text: "contentBlockDelta.delta.text contentBlockDelta.delta.toolUse.input contentBlockDelta.delta.reasoningContent.text delta.text",
	},
	{
		format: "llamacpp", places: ".",
		input: "tokens_evaluated", output: "tokens_predicted",
		text: "content",
	},
}

// unknownText are places where text may stand under other names than the rows', but for those of structure.
var (
	unknownText = []string{
		"", "choices.[].delta.", "choices.[].delta.content.[].", "delta.", "message.", "output.", "response.",
		"candidates.[].content.parts.[].", "contentBlockDelta.delta.",
	}
	structure = strings.Fields("id object model role type event_type event name index status created created_at updated_at error code param usage" +
		" finish_reason finishReason stop_reason stopReason stop_sequence done_reason native_finish_reason incomplete_details" +
		" system_fingerprint service_tier provider request_id requestId responseId response_id modelVersion generation_id session_id" +
		" item_id event_id call_id tool_call_id conversation_id obfuscation p content_block item part prompt_filter_results content_filter_results" +
		" content_filter_result citations annotations search_results metadata metrics trace logprobs signature thoughtSignature" +
		" encrypted_content interaction messageStart messageStop contentBlockStart contentBlockStop containers container context_management" +
		" instructions tools tool_choice text reasoning previous_response_id truncation user safety_identifier prompt_cache_key language")
)

// free are the places of members that tell, in an answer without usage, that no tokens were used:
// numbers of counted tokens, verdicts of a moderation, and the values of object or type.
const free = "input_tokens inputTokens totalTokens results.[].flagged object type"

// freeObjects are those values.
var freeObjects = map[string]bool{"file": true, "upload": true, "moderation": true}

// kind is a number that usage tells.
type kind uint8

const (
	input kind = iota
	moreInput
	cached
	written
	output
	moreOutput
	total
	other
	kinds
)

func (r *row) members() [kinds]string {
	return [kinds]string{r.input, r.moreInput, r.cached, r.written, r.output, r.moreOutput, r.total, r.other}
}

// Table is the rows of a format, compiled. It is immutable.
type Table struct {
	// Paths are where a [scan.Scanner] looks for a [Usage] of the table.
	Paths *scan.Paths

	leaves []leaf // by path
	ways   []way
}

// leaf is what a path leads to.
type leaf struct {
	text bool // text of a stream
	any  bool // perhaps text of a stream, at a place that no row knows
	free bool // see free
	part bool // the type of a part
	of   int  // index of the object of which it is a number; below 0: none
	ends int  // index of the object that ends here; below 0: none
}

// way is a row at one of its places.
type way struct {
	*row
	object int          // index of the place
	of     int          // it is of the parts of this object; below 0: it is not
	leaves [kinds][]int // paths
	needed int          // path; below 0: none
}

const top = "."

// NewTable returns the table of a format, empty or "auto": of all.
func NewTable(format string) (*Table, error) {
	b := builder{paths: make(map[string]int)}
	for i := range rows {
		if r := &rows[i]; format == "" || format == "auto" || r.format == format {
			b.add(r)
		}
	}
	if len(b.ways) == 0 {
		return nil, fmt.Errorf("tokens %s: want auto, %s", format, formats())
	}
	for _, path := range strings.Fields(free) {
		b.leaf(path).free = true
	}
	b.addUnknown()
	var err error
	b.Paths, err = scan.NewPaths(b.texts...)
	return &b.Table, err
}

// formats lists the names of the formats.
func formats() string {
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.format) {
			names = append(names, r.format)
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// builder compiles a table.
type builder struct {
	Table
	texts   []string       // of the paths
	paths   map[string]int // by their text
	objects []string       // places
}

// path returns the index of a path.
func (b *builder) path(text string) int {
	at, known := b.paths[text]
	if !known {
		at = len(b.texts)
		b.paths[text] = at
		b.texts, b.leaves = append(b.texts, text), append(b.leaves, leaf{of: -1, ends: -1})
	}
	return at
}

func (b *builder) leaf(text string) *leaf { return &b.leaves[b.path(text)] }

func (b *builder) add(r *row) {
	for _, path := range strings.Fields(r.text) {
		b.leaf(path).text = true
	}
	for _, place := range strings.Fields(r.places) {
		w := b.way(r, place)
		w.of = -1
		b.ways = append(b.ways, w)
		if r.parts == "" {
			continue
		}
		part := place + "." + r.parts + ".[]"
		b.leaf(part + ".type").part = true
		p := b.way(r, part)
		p.of = w.object
		b.ways = append(b.ways, p)
	}
}

// addUnknown adds the places of unknownText.
func (b *builder) addUnknown() {
	for _, within := range unknownText {
		for _, name := range structure {
			b.path(within + name)
		}
		b.leaf(within + "{}").any = true
	}
}

// way returns a row at a place.
func (b *builder) way(r *row, place string) way {
	w := way{row: r, object: slices.Index(b.objects, place), needed: -1}
	if w.object < 0 {
		w.object = len(b.objects)
		b.objects = append(b.objects, place)
	}
	prefix := ""
	if place != top {
		prefix = place + "."
		b.leaf(place).ends = w.object
	}
	for k, names := range r.members() {
		for _, name := range strings.Fields(names) {
			b.leaf(prefix + name).of = w.object
			w.leaves[k] = append(w.leaves[k], b.path(prefix+name))
		}
	}
	if r.needs != "" {
		w.needed = b.path(prefix + r.needs)
	}
	return w
}
