package limiter

import (
	"encoding/json"
	"net/http"

	"github.com/dianalimiter/diana/internal/metrics"
)

// openAIError is the error of a denial as OpenAI's API has it, whose clients show its message.
// See https://platform.openai.com/docs/guides/error-codes.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"` // null
	Code    string  `json:"code"`
}

const (
	codeRateLimit = "rate_limit_exceeded"
	codeQuota     = "insufficient_quota" // that no client of a short wait will see again
)

// openAIBody returns the body of a denial. after is the value of Retry-After; retries is whether clients are to
// wait for it.
func (q *request) openAIBody(e *exceeded, after string, retries bool) []byte {
	unit, zone := "requests", ""
	if e.zone != nil {
		zone = " for " + e.zone.WrittenName()
		if e.zone.Config.Charge.Counts() {
			unit = "tokens"
		}
	}
	err := openAIError{Type: unit, Code: codeRateLimit}
	switch {
	case q.verdict == unavailable:
		err.Type, err.Code, err.Message = "server_error", "service_unavailable", "Rate limits cannot be decided. Please try again in "+after+"s."
	case q.verdict == overloaded:
		err.Type, err.Code, err.Message = "server_error", "service_unavailable", "The server is overloaded. Please try again in "+after+"s."
	case e.cause == metrics.CauseTooLarge:
		err.Message = "Request too large" + zone + ": it may take more " + unit + " than rule " + e.label + " ever admits. Please shorten the input, or lower max_tokens."
	case retries:
		err.Message = "Rate limit reached" + zone + " (" + e.label + "). Please try again in " + after + "s."
	case after != "":
		err.Type, err.Code, err.Message = codeQuota, codeQuota, "You exceeded your current quota"+zone+" ("+e.label+"). It is available again in "+after+"s."
	default:
		err.Message = "Rate limit reached" + zone + " (" + e.label + ")."
	}
	body, _ := json.Marshal(map[string]openAIError{"error": err}) // never fails
	return body
}

// writeOpenAI writes the body of a denial. The server adds its length: a handler around may replace the body.
func writeOpenAI(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set(headerContentType, "application/json")
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// bodiless writes the response of an error route to a denial: with the body of the denial, if the route
// writes the status of the denial and none itself.
type bodiless struct {
	http.ResponseWriter
	status int // of the denial
	body   []byte
	held   bool // the header, until it is known whether a body follows
	begun  bool
}

// WriteHeader implements http.ResponseWriter.
func (b *bodiless) WriteHeader(status int) {
	switch {
	case b.begun || b.held:
	case status == b.status && b.Header()[headerContentType] == nil:
		b.held = true
	default:
		b.begun = status >= http.StatusOK
		b.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (b *bodiless) Write(p []byte) (int, error) {
	if len(p) == 0 && b.held { // it would write the status 200
		return 0, nil
	}
	b.begin()
	return b.ResponseWriter.Write(p)
}

// FlushError implements the interface of http.ResponseController.
func (b *bodiless) FlushError() error {
	b.begin()
	return http.NewResponseController(b.ResponseWriter).Flush()
}

// Unwrap returns the writer below.
func (b *bodiless) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *bodiless) begin() {
	if b.held {
		b.ResponseWriter.WriteHeader(b.status)
	}
	b.held, b.begun = false, true
}

// end ends the response.
func (b *bodiless) end() error {
	if !b.held || b.Header()["Content-Length"] != nil {
		b.begin()
		return nil
	}
	b.held = false
	return writeOpenAI(b.ResponseWriter, b.status, b.body)
}
