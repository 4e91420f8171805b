package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/dianalimiter/diana/internal/ops/replay"
)

// Offline is a configuration that was opened without running it.
type Offline struct {
	Close func() // releases it
	Zones int    // the number of its zones

	// Config is what decides about recorded requests.
	Config *replay.Config

	// Serve answers a request to the admin API as an instance with the configuration would. rest
	// is the rest of its path, behind [Prefix].
	Serve func(w http.ResponseWriter, r *http.Request, rest string) error
}

// Open opens a configuration; file "": the Caddyfile in this directory. The document in rulesFile,
// if any, is in force. With strict, what only a running configuration needs is checked too.
var Open func(file, adapter, rulesFile string, strict bool) (*Offline, error)

// offline reports whether a command that can look at a configuration itself does so: --config names
// one, and --address no running Caddy.
func (c *adminClient) offline() bool { return c.config != "" && c.address == "" }

// ask asks the configuration itself, if the command is offline, and else the running Caddy.
func (c *adminClient) ask(method, path string, header http.Header, body io.Reader, v any) ([]byte, http.Header, error) {
	if !c.offline() {
		return c.send(method, path, header, body, v)
	}
	o, err := Open(c.config, c.adapter, c.rules, false)
	if err != nil {
		return nil, nil, err
	}
	defer o.Close()
	r, err := http.NewRequest(method, Prefix+path, body) //nolint:noctx // it is answered here
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	w := answer{header: make(http.Header)}
	if err := o.Serve(&w, r, path); err != nil {
		return nil, nil, err
	}
	return w.Bytes(), w.header, json.Unmarshal(w.Bytes(), v)
}

// answer is a response to the command itself.
type answer struct {
	bytes.Buffer
	header http.Header
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (*answer) WriteHeader(int) {}

// validateConfig checks the rate limits of a configuration.
func (c *adminClient) validateConfig() error {
	if c.address != "" {
		return errors.New("validate --address: want a document of rules to check there, or no address to check a configuration")
	}
	o, err := Open(c.config, c.adapter, c.rules, true)
	if err != nil {
		return err
	}
	defer o.Close()
	if c.json {
		_, err = fmt.Fprintf(c.out, "{\"valid\": true, \"zones\": %d}\n", o.Zones)
		return err
	}
	return printAnswer(c.out, "validation", &Validation{Valid: true, Zones: o.Zones})
}
