package scan

// Clients leave a stream when they have its last event, before it ends. How such an event is known:

// lastNames are the names of last events, in the line event or in the data's type.
var lastNames = map[string]bool{
	"message_stop": true, // Anthropic
	"message-end":  true, // Cohere
	"stream-end":   true, // Cohere, version 1

	"response.completed": true, "response.incomplete": true, "response.failed": true, "response.cancelled": true, // OpenAI
	"image_generation.completed": true, "image_edit.completed": true, "transcript.text.done": true, "speech.audio.done": true,
	"response.done": true, // in sockets, and by those that pass them on

	"conversation.response.done": true, "conversation.response.error": true, "transcription.done": true, // Mistral

	"interaction.complete": true, "interaction.completed": true, // Gemini's interactions
}

// lastData is the data of a last event that is no JSON.
const lastData = "[DONE]"

// sign is what may say that a text is the last one of a stream.
type sign uint8

const (
	named    sign = 1 << iota // its name is one of lastNames
	isDone                    // a member is true
	finished                  // an answer has a reason why it is finished
	used                      // it tells what was used, which with finished says so
)

// ends are the places of the signs.
var ends = []struct {
	path string
	sign sign
}{
	{"type", named},
	{"event_type", named},
	{"done", isDone},                         // Ollama
	{"stop", isDone},                         // llama.cpp
	{"candidates.[].finishReason", finished}, // Gemini
	{"usageMetadata.promptTokenCount", used},
	{"usageMetadata.totalTokenCount", used},
}

// in reports whether a value is the sign.
func (s sign) in(v Value) bool {
	switch s {
	case named:
		return v.Kind == String && lastNames[string(v.Text)]
	case isDone:
		return v.Kind == Boolean && string(v.Text) == "true"
	case finished:
		return v.Kind == String && len(v.Text) > 0
	}
	return v.Kind == Number
}

// last reports whether the signs of a text say that it is the last.
func (s sign) last() bool { return s&(named|isDone) != 0 || s&(finished|used) == finished|used }
