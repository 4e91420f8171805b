// Package upstream answers as the APIs of OpenAI (chat completions) and Anthropic (messages) do,
// streamed or not, with the usage of what it answers. A word is a token.
package upstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Handler answers POST to paths that end with /chat/completions and /messages with as many words
// as the request allows.
type Handler struct{}

// ask is the part of a request that Handler reads.
type ask struct {
	Model         string `json:"model"`
	MaxTokens     int    `json:"max_tokens"`
	MaxCompletion int    `json:"max_completion_tokens"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Content json.RawMessage `json:"content"` // text, or a list of parts with text
	} `json:"messages"`
}

// maxTokens bounds an answer.
const maxTokens = 10_000

// output returns the number of tokens of the answer.
func (a *ask) output() int {
	n := max(a.MaxTokens, a.MaxCompletion)
	if n <= 0 {
		n = 16
	}
	return min(n, maxTokens)
}

// input returns the number of tokens of the messages.
func (a *ask) input() (n int) {
	for _, m := range a.Messages {
		var text string
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(m.Content, &text) != nil && json.Unmarshal(m.Content, &parts) == nil {
			for _, p := range parts {
				text += " " + p.Text
			}
		}
		n += len(strings.Fields(text))
	}
	return n
}

// ServeHTTP implements http.Handler.
func (Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a ask
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := &answer{w: w, ask: &a}
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions") && a.Stream:
		s.streamCompletion()
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		s.json(s.completion("chat.completion", "message", message("assistant", s.text()), s.completionUsage()))
	case strings.HasSuffix(r.URL.Path, "/messages") && a.Stream:
		s.streamMessage()
	case strings.HasSuffix(r.URL.Path, "/messages"):
		s.json(s.message([]any{map[string]any{"type": "text", "text": s.text()}}, "end_turn", s.messageUsage(a.output())))
	default:
		http.NotFound(w, r)
	}
}

// answer is the answer to a request.
type answer struct {
	w   http.ResponseWriter
	ask *ask
}

// word is the text of each token of an answer.
const word = "word "

func (s *answer) text() string { return strings.Repeat(word, s.ask.output()) }

func (s *answer) json(v any) {
	s.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(s.w).Encode(v)
}

// event sends an event of a stream at once. The name may be empty.
func (s *answer) event(name string, v any) {
	if name != "" {
		_, _ = fmt.Fprintf(s.w, "event: %s\n", name)
	}
	b, _ := json.Marshal(v)
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", b)
	_ = http.NewResponseController(s.w).Flush()
}

func message(role, text string) map[string]any {
	return map[string]any{"role": role, "content": text}
}

func (s *answer) completionUsage() map[string]any {
	in, out := s.ask.input(), s.ask.output()
	return map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
}

// completion returns a chat completion, or a chunk of one.
func (s *answer) completion(object, member string, text map[string]any, usage any) map[string]any {
	choice := map[string]any{"index": 0, member: text, "finish_reason": nil}
	if object == "chat.completion" {
		choice["finish_reason"] = "stop"
	}
	return map[string]any{
		"id": "chatcmpl-1", "object": object, "created": 1_700_000_000, "model": s.ask.Model, "choices": []any{choice}, "usage": usage,
	}
}

func (s *answer) streamCompletion() {
	s.w.Header().Set("Content-Type", "text/event-stream")
	for i := range s.ask.output() {
		delta := map[string]any{"content": word}
		if i == 0 {
			delta["role"] = "assistant"
		}
		s.event("", s.completion("chat.completion.chunk", "delta", delta, nil))
	}
	end := s.completion("chat.completion.chunk", "delta", map[string]any{}, nil)
	end["choices"].([]any)[0].(map[string]any)["finish_reason"] = "stop" //nolint:forcetypeassert // made above
	s.event("", end)
	if s.ask.StreamOptions.IncludeUsage {
		end["choices"], end["usage"] = []any{}, s.completionUsage()
		s.event("", end)
	}
	_, _ = fmt.Fprint(s.w, "data: [DONE]\n\n")
}

func (s *answer) messageUsage(output int) map[string]any {
	return map[string]any{"input_tokens": s.ask.input(), "output_tokens": output}
}

// message returns a message of Anthropic's, or what begins one.
func (s *answer) message(content []any, stop any, usage any) map[string]any {
	return map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": s.ask.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
}

func (s *answer) streamMessage() {
	s.w.Header().Set("Content-Type", "text/event-stream")
	typed := func(name string, members map[string]any) {
		members["type"] = name
		s.event(name, members)
	}
	typed("message_start", map[string]any{"message": s.message([]any{}, nil, s.messageUsage(1))})
	typed("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
	for range s.ask.output() {
		typed("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": word}})
	}
	typed("content_block_stop", map[string]any{"index": 0})
	typed("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": map[string]any{"output_tokens": s.ask.output()},
	})
	typed("message_stop", map[string]any{})
}
