package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

func answerGet(w http.ResponseWriter, r *http.Request, get func() (any, error)) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return wrongMethod(w, r, "GET")
	}
	v, err := get()
	if err != nil {
		return err
	}
	return answerJSON(w, v)
}

// checkJSON rejects a body that is not JSON: a page of another origin can send a form
// without a CORS preflight, but not JSON.
func checkJSON(r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return apiError(http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type %q: want application/json", shortened(r.Header.Get("Content-Type"))))
	}
	return nil
}

// answerJSON writes v as JSON, with the characters that are special in HTML escaped.
func answerJSON(w http.ResponseWriter, v any) error { return answerStatus(w, http.StatusOK, v) }

// answerStatus is answerJSON with a status.
func answerStatus(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	switch v.(type) {
	case history.Past, *cli.Live: // indented, each number would take a line
	default:
		enc.SetIndent("", " ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err := w.Write(loglimit.EscapeJSON(b.Bytes()))
	return err
}

func noZone(in instance, name string) error {
	return apiError(http.StatusNotFound, fmt.Errorf("zone %q: %s", shortened(name), option.None(name, in.Registry.Names())))
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allow string) error {
	w.Header().Set("Allow", allow)
	return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s: want %s", shortened(r.Method), allow))
}

// shortened returns the beginning of a request's text, for an error.
func shortened(text string) string { return text[:min(len(text), 64)] }

func apiError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: errors.New(loglimit.Short(err))}
}
