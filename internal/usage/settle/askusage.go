package settle

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/dianalimiter/diana/internal/body"
)

// askUsage makes a request for a stream ask for its usage: OpenAI's completions do not tell it otherwise.
// It is called before the body is handed on.
func askUsage(r *http.Request) {
	if signed(r.Header) {
		return
	}
	const options = "stream_options"
	text := body.JSON(r)
	request := members(text, "stream", "messages", "prompt", "input", options)
	completes := request["messages"].Exists() || request["prompt"].Exists()
	if request["stream"].Type != gjson.True || !completes || request["input"].Exists() {
		return
	}
	asked := request[options]
	switch {
	case members(asked.Raw, "include_usage")["include_usage"].Type == gjson.True:
		return
	case asked.Type == gjson.Null: // or missing
		asked.Raw = "{}"
	case !asked.IsObject():
		return // for the upstream to refuse
	}
	body.Replace(r, withMember(text, options, withMember(asked.Raw, "include_usage", "true")))
}

// signed reports whether the headers of a request say anything of its body that would not be true
// of another.
func signed(h http.Header) bool {
	if coding := h.Values("Content-Encoding"); len(coding) > 0 && !strings.EqualFold(strings.Join(coding, ","), "identity") {
		return true
	}
	names := []string{"Content-Digest", "Repr-Digest", "Digest", "Content-Md5", "Signature", "Signature-Input", "X-Amz-Content-Sha256"}
	return slices.ContainsFunc(names, func(name string) bool { return len(h[name]) > 0 })
}

// members returns members of a JSON object: of several of a name the last, as upstreams read it.
func members(object string, names ...string) map[string]gjson.Result {
	found := make(map[string]gjson.Result)
	gjson.Parse(object).ForEach(func(k, v gjson.Result) bool {
		if slices.Contains(names, k.Str) {
			found[k.Str] = v
		}
		return true
	})
	return found
}

// withMember returns a JSON object with a member that has a value, in place of the last of its name.
func withMember(object, name, value string) string {
	if old := members(object, name)[name]; old.Exists() {
		return object[:old.Index] + value + object[old.Index+len(old.Raw):]
	}
	opened := strings.IndexByte(object, '{') + 1
	member := `"` + name + `":` + value
	if !strings.HasPrefix(strings.TrimLeft(object[opened:], " \t\r\n"), "}") {
		member += ","
	}
	return object[:opened] + member + object[opened:]
}
