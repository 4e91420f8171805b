package config

// Tokens makes the tokens of language models the cost of a zone's requests: what they may take is
// held, and what the response tells of its usage is charged. GET, HEAD, OPTIONS and
// CONNECT cost nothing.
type Tokens struct {
	// The format of the usage in responses, streamed or not: "openai" (and those with the same
	// members), "anthropic", "gemini", "ollama", "cohere", "bedrock" (Converse as JSON) or
	// "llamacpp". "auto" recognizes all of them. Default: "auto".
	Format string `json:"format,omitempty"`

	// What a token of the input weighs: a decimal with at most seven digits before the point and
	// six after it, or a placeholder, such as a price from map. Where inputs above a length
	// have another price, the weights stand one after the other: "1.25 above 200000 2.5" is 1.25, and 2.5
	// for a request of more than 200000 tokens of input, cached ones included. Default: 1.
	Input Value `json:"input,omitempty"`

	// What a token of the input weighs that was read from a cache. Default: as input.
	Cached Value `json:"cached,omitempty"`

	// What a token of the input weighs that was written to a cache. Default: as input.
	CacheWrite Value `json:"cache_write,omitempty"`

	// What a token of the output weighs, reasoning included. Default: 1.
	Output Value `json:"output,omitempty"`

	// What is at least held until the response ends: a whole number of at least 1, or a placeholder.
	// What the request bounds its output to (see below) is held if that is more.
	// A rule of a lower capacity is an error. Default: a token of the input for four bytes of
	// the request, and for 256 bytes of a file in base64, by its weight, and by that of the output
	// as many tokens as the request allows (max_tokens, max_completion_tokens,
	// max_output_tokens, num_predict, n_predict, generationConfig.maxOutputTokens or
	// inferenceConfig.maxTokens, times n or best_of); if it does not say, 1000 times n, at most
	// a tenth of the least capacity.
	Reserve Value `json:"reserve,omitempty"`

	// Add stream_options.include_usage to requests for streams of completions, which have no
	// usage otherwise. Only for the format "openai". Bodies that are encoded, signed or above
	// max_body are not changed, nor are requests in a shadow zone. Default: false.
	AskUsage bool `json:"ask_usage,omitempty"`
}
