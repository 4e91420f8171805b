package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dianalimiter/diana/internal/ops/replay"
)

// replayOptions are the options of replay.
type replayOptions struct {
	key, sets, methods, statuses []string
	path, host                   string
	deny, failAbove              float64
	undecided                    bool // they do not fail
}

const (
	// gcPercent bounds the memory of a log with many clients to 1.5 times what is in use.
	gcPercent = 50

	// memoryLimit is what a million clients are measured in.
	memoryLimit = 448 << 20
)

var isStatus = regexp.MustCompile(`^[1-5](\d\d|xx|XX)$`)

// maxSets is how many changed rules are tried beside each other.
const maxSets = 8

func (c *adminClient) replayCommand() *cobra.Command {
	o := replayOptions{failAbove: -1}
	cmd := &cobra.Command{
		Use:   "replay <log>...",
		Short: "Shows what limits would have done to the requests in access logs",
		Long: `
Reads access logs: Caddy's JSON, or the common and combined formats of nginx and
Apache, also compressed (.gz, .zst); - is stdin. Nothing is charged.

Without --config, it prints the most requests that one client made, and the lowest
limit that would have denied at most the share --deny of the clients.
With --config, it prints what the zones of this configuration would have done.

It cannot know how clients would have reacted to denials: it decides the requests
as logged. It exits with 1 if more requests are denied than --fail-above allows,
and with 2 if most lines cannot be read, or if --fail-above is given and nothing, or
not all, could be decided.`,
		Example: `  caddy rate-limit replay access.log
  caddy rate-limit replay access.log --path '/api/*' --key {header.X-Account} --deny 1%
  caddy rate-limit replay access*.log.gz --config Caddyfile --set api=20/1m --set api=50/1m
  caddy rate-limit replay access.log --config Caddyfile --fail-above 0.1`,
		Args: cobra.MinimumNArgs(1),
	}
	var deny string
	f := cmd.Flags()
	f.StringArrayVar(&o.key, "key", []string{"{client_ip}"}, "Without --config: part of the key; may be repeated")
	f.StringVar(&o.path, "path", "", "Without --config: only paths such as '/api/*'")
	f.StringSliceVar(&o.methods, "method", nil, "Without --config: only these methods")
	f.StringSliceVar(&o.statuses, "status", nil, "Without --config: only responses such as 401 or 4xx")
	f.StringVar(&deny, "deny", "", "Without --config: the share of the clients that may be denied (default, and of one client at least: 0.1%)")
	f.StringVar(&c.rules, "rules", "", "With --config: apply the rules of this document")
	f.StringArrayVar(&o.sets, "set", nil, "With --config: also decide with another rate, such as api=20/1m or api.burst=50/1s; may be repeated")
	f.Float64Var(&o.failAbove, "fail-above", -1, "With --config: exit with 1 if more than this percentage of the requests is denied")
	f.BoolVar(&o.undecided, "undecided", false, "With --config: let --fail-above pass though some requests are undecided")
	f.StringVar(&o.host, "host", "", "The host of requests in logs that have none")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true
		c.out = cmd.OutOrStdout()
		o.deny = -1
		if f.Changed("deny") {
			percent, err := strconv.ParseFloat(strings.TrimSuffix(deny, "%"), 64)
			if err != nil || !(percent >= 0 && percent <= 100) {
				return fmt.Errorf("--deny %s: want a percentage such as 0.1%%", deny)
			}
			o.deny = percent / 100
		}
		if f.Changed("fail-above") && !(o.failAbove >= 0 && o.failAbove <= 100) {
			return fmt.Errorf("--fail-above %v: want a percentage from 0 to 100", o.failAbove)
		}
		for _, s := range o.statuses {
			if !isStatus.MatchString(s) {
				return fmt.Errorf("--status %s: want a status such as 401, or a class such as 4xx", s)
			}
		}
		others := []string{"rules", "set", "fail-above", "undecided"}
		if c.config != "" {
			others = []string{"key", "path", "method", "status", "deny"}
		}
		for _, name := range others {
			if f.Changed(name) { // its usage begins with what it goes with
				return fmt.Errorf("--%s: %s", name, f.Lookup(name).Usage)
			}
		}
		if len(o.sets) > maxSets {
			return fmt.Errorf("--set is given %d times: want at most %d", len(o.sets), maxSets)
		}
		status, err := c.replay(&o, args)
		if status > 1 { // Caddy exits with 1 after other errors
			return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return status, err })(cmd, nil)
		}
		return err
	}
	return cmd
}

// replayed is the answer of replay, as JSON.
type replayed struct {
	replay.Read
	From     time.Time       `json:"from,omitzero"`
	To       time.Time       `json:"to,omitzero"`
	Requests *replay.Decided `json:"requests,omitempty"`
	Zones    []replay.Zone   `json:"zones,omitempty"`
	Sets     []replayedSet   `json:"sets,omitempty"`
	*replay.Measured
}

// replayedSet is what a changed rule would have done.
type replayedSet struct {
	Set      string         `json:"set"`
	Requests replay.Decided `json:"requests"`
	Zones    []replay.Zone  `json:"zones"`
}

func (c *adminClient) replay(o *replayOptions, paths []string) (status int, err error) {
	debug.SetGCPercent(gcPercent)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	logs := replay.Logs{Paths: paths, Stop: func() bool { return ctx.Err() != nil }}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		logs.Told = progress(time.Now())
		defer fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	var out replayed
	var finish func()
	if c.config == "" {
		finish, err = c.measure(&logs, o, &out)
	} else {
		var opened []*Offline
		defer func() {
			for _, x := range opened {
				x.Close()
			}
		}()
		finish, err = c.decide(&logs, o, &out, &opened)
	}
	if err != nil {
		return 1, err
	}
	if out.Read, err = logs.Read(); err != nil {
		return 1, err
	}
	if out.Unread > out.Lines+out.Other {
		return 2, fmt.Errorf("%d of %d lines cannot be read, such as %q: want access logs of Caddy in JSON, or in the common or combined format", out.Unread, out.Unread+out.Lines+out.Other, out.First[0])
	}
	if out.Lines > 0 {
		out.From, out.To = out.Span()
	}
	finish()
	if c.json {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", " ")
		err = enc.Encode(&out)
	} else {
		err = printAnswer(c.out, "replayed", &out)
	}
	if err != nil {
		return 1, err
	}
	return o.failed(&out)
}

// measure measures what clients did, by the logs.
func (c *adminClient) measure(logs *replay.Logs, o *replayOptions, out *replayed) (finish func(), err error) {
	for _, part := range o.key {
		if part != "static" && !strings.Contains(part, "{") {
			return nil, fmt.Errorf("--key %s: want a placeholder, such as {client_ip} or {header.%s}, or static for all requests together", part, part)
		}
	}
	clients, err := replay.NewClients(o.key)
	if err != nil {
		return nil, err
	}
	debug.SetMemoryLimit(memoryLimit)
	path := caddyhttp.MatchPath{o.path}
	if err := path.Provision(caddy.Context{}); err != nil {
		return nil, err
	}
	clients.Host, logs.Each = o.host, clients.Add
	logs.Wants = func(l *replay.Line) bool {
		status := strconv.Itoa(l.Status)
		is := func(s string) bool { return s == status || strings.ToLower(s) == status[:1]+"xx" }
		if len(o.methods) > 0 && !slices.Contains(o.methods, l.Method) || len(o.statuses) > 0 && !slices.ContainsFunc(o.statuses, is) {
			return false
		}
		if o.path == "" {
			return true
		}
		match, err := path.MatchWithError(l.Request(o.host))
		return err == nil && match
	}
	return func() { out.Measured = clients.Measured(o.deny) }, nil
}

// decide decides the requests in the logs by a configuration and, beside it, with each changed rule.
func (c *adminClient) decide(logs *replay.Logs, o *replayOptions, out *replayed, opened *[]*Offline) (finish func(), err error) {
	var all []*replay.Zones
	const enforced = "\x00" // a column with no zone in shadow
	sets := slices.Concat([]string{""}, o.sets)
	for i := 0; i < len(sets); i++ {
		set := sets[i]
		x, err := Open(c.config, c.adapter, c.rules, false)
		if err != nil {
			return nil, err
		}
		*opened = append(*opened, x)
		if c.rules == "" {
			if err := x.Config.ReadRules(); err != nil {
				return nil, fmt.Errorf("%w; or want --rules <file>, with a document to apply in its place", err)
			}
		}
		if set == enforced {
			if err := x.Config.Enforce(); err != nil {
				return nil, err
			}
		} else if set != "" {
			if err := change(x.Config, set); err != nil {
				return nil, fmt.Errorf("--set %s: %w", set, err)
			}
		}
		z, err := replay.NewZones(x.Config)
		if err != nil {
			return nil, err
		}
		z.Host = o.host
		all = append(all, z)
		if i == 0 && z.Shadows() {
			sets = append(sets, enforced)
		}
	}
	logs.Each = func(l *replay.Line) error {
		for _, z := range all {
			z.Add(l)
		}
		return nil
	}
	return func() {
		for i, z := range all {
			z.End()
			switch list := z.Result(&out.Read); {
			case i == 0:
				out.Requests, out.Zones = &z.Decided, list
			case sets[i] == enforced:
				all[0].Compare(out.Zones, z, &out.Read)
			default:
				out.Sets = append(out.Sets, replayedSet{o.sets[i-1], z.Decided, list})
			}
		}
	}, nil
}

// change puts another rate in force: <zone>[.<rule>]=<rate>.
func change(x *replay.Config, set string) error {
	name, rate, ok := strings.Cut(set, "=")
	zone, rule, _ := strings.Cut(name, ".")
	if !ok {
		return errors.New("want <zone>[.<rule>]=<rate>, such as api=20/1m")
	}
	words := strings.Fields(rate)
	if rule != "" {
		words = slices.Insert(words, 0, rule)
	}
	return x.Set(zone, words)
}

// failed returns an error, and the status to exit with, if more than a percentage of the requests is
// denied, or if that is not known.
func (o *replayOptions) failed(out *replayed) (status int, err error) {
	if o.failAbove < 0 {
		return 0, nil
	}
	if len(out.Cut) > 0 && !o.undecided {
		return 2, fmt.Errorf("--fail-above: %s is cut: want the whole log, or --undecided", out.Cut[0])
	}
	columns := []replay.Decided{*out.Requests}
	for _, s := range out.Sets {
		columns = append(columns, s.Requests)
	}
	for _, d := range columns {
		switch {
		case d.Undecided > 0 && !o.undecided:
			return 2, fmt.Errorf("--fail-above: %s undecided: want none, or --undecided", things(d.Undecided, "request"))
		case !d.Any():
			return 2, errors.New("--fail-above: no request was decided: want a log of requests to the zones of the configuration")
		}
		if p := d.Percent(); p > o.failAbove {
			return 1, fmt.Errorf("%.3g %% of the requests would be denied: want at most %g %%", p, o.failAbove)
		}
	}
	return 0, nil
}

// progress tells on standard error how far reading is, and how long it will take.
func progress(begun time.Time) func(part, of int64) {
	return func(part, of int64) {
		left := ""
		if of > 0 && part > 0 {
			took := time.Since(begun).Seconds()
			left = fmt.Sprintf(", %d %%, %s left", 100*part/of, span(took*float64(of-part)/float64(part)))
		}
		fmt.Fprintf(os.Stderr, "\r\x1b[K%d MB%s", part/1e6, left)
	}
}
