package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/braces"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/ops/admin"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/replay"
	"github.com/dianalimiter/diana/internal/ops/routes"
	"github.com/dianalimiter/diana/internal/ops/running"
	"github.com/dianalimiter/diana/rules"
)

func init() { cli.Open = open }

// open provisions what limits requests in a configuration, without running it: nothing listens,
// connects to a store or writes to Caddy's storage, and a source of rules is read on demand only.
// With strict, the options of stores and sources are checked too, for which their environment
// must be there.
func open(file, adapter, rulesFile string, strict bool) (*cli.Offline, error) {
	level := "ERROR"
	if strict {
		level = "WARN"
	}
	bare, ctx, err := cli.Quiet(level)
	if err != nil {
		return nil, err
	}
	given := file
	text, file, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, allErrors(cmp.Or(given, "Caddyfile"), cmp.Or(adapter, "caddyfile"), err)
	}
	if len(text) == 0 {
		return nil, errors.New("no configuration: want --config <file>, or a Caddyfile in this directory")
	}
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	now := new(int64)                                         // of a recorded request; 0: the present
	bare.AppsRaw = caddy.ModuleMap{"http": c.AppsRaw["http"]} // the app http is looked at, and not loaded
	for _, name := range names.Own() {
		bare.AppsRaw[name] = c.AppsRaw[name]
	}
	ctx.Context = process.With(context.Background(), &process.Process{Clock: func() int64 { return cmp.Or(*now, clock.Now()) }})
	ctx, cancel := caddy.NewContext(ctx)
	in, texts, err := provision(ctx, &c, strict)
	document := offlineRules{ctx, in, []byte("{}")}
	if err == nil && rulesFile != "" {
		err = document.applyFile(rulesFile)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	api := admin.API{Running: running.Of(process.Of(ctx)).Watch, File: true}
	servers, _ := in.Servers()
	config := &replay.Config{Servers: servers, Texts: texts, Limiter: in.Limiter, Now: now, ReadRules: document.read, Set: document.set, Enforce: document.enforce}
	return &cli.Offline{Close: cancel, Config: config, Zones: len(in.Registry.Kinds()), Serve: func(w http.ResponseWriter, r *http.Request, rest string) error {
		return api.Serve(w, r, rest, false)
	}}, nil
}

// allErrors returns the errors of all directives in a configuration; first is that of the first
// with errors, at which Caddy ends.
func allErrors(file, adapter string, first error) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own file
	a := caddyconfig.GetAdapter(adapter)
	if err != nil || a == nil {
		return first
	}
	var unclosed error
	if adapter == "caddyfile" {
		unclosed = braces.Unclosed(file, caddyfile.Token{})
	}
	var all option.Errors
	options := map[string]any{"filename": file, option.Reported: &all}
	for _, name := range names.Own() {
		options[name] = &all
	}
	_, _, err = a.Adapt(text, options)
	if len(all) == 0 {
		return option.Join(unclosed, first)
	}
	return option.Join(append(all, err)...)
}

// provision provisions the app and the routes to the handlers that use it.
func provision(ctx caddy.Context, c *caddy.Config, strict bool) (*running.Instance, *routes.Texts, error) {
	if _, err := names.App(ctx); err != nil {
		return nil, nil, err
	}
	in, _ := running.Of(process.Of(ctx)).Watch()
	if strict {
		if err := in.Check(); err != nil {
			return nil, nil, err
		}
	}
	servers, texts, err := routes.Load(ctx, c.AppsRaw["http"], func(name string) bool { return names.Is(name) || name == "rate_limit_quota" })
	in.Servers = func() (map[string]*caddyhttp.Server, error) { return servers, nil }
	return in, texts, errors.Join(err, in.Complete())
}

// offlineRules is the document in force in an instance that does not run.
type offlineRules struct {
	ctx  context.Context
	in   *running.Instance
	text []byte
}

// applyFile puts the document in a file in force, in the place of that of the source of rules.
func (o *offlineRules) applyFile(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the user's own file
	if err == nil {
		err = o.apply(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (o *offlineRules) apply(text []byte) error {
	d, err := rules.Parse(text)
	if err == nil {
		_, err = o.in.Registry.Apply(d)
	}
	o.text = text
	return err
}

// read reads the source of rules once, if there is one, and puts its document in force.
func (o *offlineRules) read() error {
	source, err := o.in.Source()
	if source == nil || err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(o.ctx)
	text, err := source.Fetch(ctx)
	cancel()
	source.Notify(ctx, func() {}, func(error) {}) // releases it
	if err == nil {
		err = o.apply(text)
	}
	if err != nil && !errors.Is(err, rules.ErrEmpty) {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}

// set puts the document in force with another rate of a zone.
func (o *offlineRules) set(zone string, words []string) error {
	text, err := admin.Set(o.in, o.text, zone, words)
	if err != nil {
		return err
	}
	return o.apply(text)
}

// enforce puts the document in force with all zones out of shadow.
func (o *offlineRules) enforce() error {
	text, err := admin.Enforce(o.in, o.text)
	if err != nil {
		return err
	}
	return o.apply(text)
}
