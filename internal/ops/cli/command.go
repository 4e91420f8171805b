// Package cli implements the command caddy rate-limit, and defines the JSON that it shares
// with the admin API.
//
// Nothing here is on the way of a request.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/limiter"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "<command>",
		Short: "Shows and controls the rate limits of the running Caddy",
		Long: `
Queries the admin endpoint of the running Caddy. Its address is that of --address,
or else of the configuration in --config, or else Caddy's default.

With --config and without --address, explain and validate need no running Caddy:
they load the configuration, but do not serve it or connect to Redis. replay reads
logs and needs no running Caddy.

The admin endpoint also serves a live page at /rate_limit/. Browsers get 403 unless
the block of admin in the configuration has this line:
origins localhost:2019 127.0.0.1:2019 [::1]:2019 ""`,
		CobraFunc: rateLimitCommands,
	})
}

// adminClient is a client of the admin API.
type adminClient struct {
	address, config, adapter string
	rules                    string // a document for a configuration that is only looked at
	json                     bool
	out                      io.Writer
}

func rateLimitCommands(cmd *cobra.Command) {
	c := new(adminClient)
	f := cmd.PersistentFlags()
	f.StringVar(&c.address, "address", "", "Address of the administration listener, if different from config")
	f.StringVarP(&c.config, "config", "c", "", "Configuration file")
	f.StringVarP(&c.adapter, "adapter", "a", "", "Name of config adapter to apply")
	f.BoolVar(&c.json, "json", false, "Print the answer as JSON")
	rejectOthers(cmd)
	add := func(use, short string, args cobra.PositionalArgs, run func(args []string) error) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			c.out = cmd.OutOrStdout()
			return run(args)
		}}
		cmd.AddCommand(sub)
		return sub
	}
	var fleet bool
	zones := add("zones", "Lists the zones, the rules in force and the stores", cobra.NoArgs, func([]string) error {
		return show(c, c.send, http.MethodGet, ofFleet("zones", fleet), nil, new(Zones), "zones")
	})
	var hash string
	key := add("key [<zone>] <part>...", "Shows the state of a key, in one zone or in all that have counted it; nothing is charged", cobra.MinimumNArgs(1), func(args []string) error {
		if found, err := c.search(args, hash); found || err != nil {
			return err
		}
		return c.key(http.MethodGet, args[0], args[1:], hash)
	})
	key.Flags().StringVar(&hash, "hash", "", "The key's hash, as top shows it, instead of its parts")
	find := add("find <part>...", "Looks for a key in all zones, and shows its state in those that have counted it, and why it was denied lately; nothing is charged", cobra.MinimumNArgs(1), func(args []string) error {
		_, err := c.find(args, true, fleet)
		return err
	})
	add("exceptions [<zone>]", "Lists what block and allow have set and has not ended: which keys, until when, who set it (as the client claimed) and why", cobra.MaximumNArgs(1), func(args []string) error {
		q := url.Values{}
		if len(args) == 1 {
			q.Set("zone", args[0])
		}
		return show(c, c.send, http.MethodGet, "exceptions?"+q.Encode(), nil, new(Exceptions), "exceptions")
	})
	reset := add("reset <zone> <part>...", "Deletes the counts and blocks of a key on all instances", cobra.MinimumNArgs(1), func(args []string) error {
		return c.key(http.MethodDelete, args[0], args[1:], hash)
	})
	reset.Flags().StringVar(&hash, "hash", "", "The key's hash, as top shows it, instead of its parts")
	top := add("top [<zone>]", "Lists the keys of this instance with the most requests and the most denials, of one zone or of all", cobra.MaximumNArgs(1), func(args []string) error {
		if len(args) == 0 {
			return show(c, c.send, http.MethodGet, ofFleet("top", fleet), nil, new(Tops), "tops")
		}
		return show(c, c.send, http.MethodGet, ofFleet("zones/"+url.PathEscape(args[0])+"/top", fleet), nil, new(Top), "top")
	})
	spend := add("spend [<zone>]", "Lists what requests to zones with group_by cost on this instance since it started, by group", cobra.MaximumNArgs(1), func(args []string) error {
		if len(args) == 0 {
			return show(c, c.send, http.MethodGet, ofFleet("spend", fleet), nil, new(Spends), "spends")
		}
		return show(c, c.send, http.MethodGet, ofFleet("zones/"+url.PathEscape(args[0])+"/spend", fleet), nil, new(Spend), "spend")
	})
	for _, sub := range []*cobra.Command{zones, find, top, spend} {
		sub.Flags().BoolVar(&fleet, "fleet", false, "Of all instances that share the first store")
	}
	c.addValidate(add)
	addChanges(c, cmd, add)
	c.addExplain(add)
	cmd.AddCommand(c.replayCommand())
	for _, sub := range cmd.Commands() {
		if strings.Contains(sub.Use, "<zone>") {
			sub.ValidArgsFunction = c.completeZone
		}
	}
	finish(cmd)
}

// ofFleet returns a path of the admin API for all instances.
func ofFleet(path string, fleet bool) string {
	if fleet {
		path += "?fleet"
	}
	return path
}

// adder adds a subcommand.
type adder func(use, short string, args cobra.PositionalArgs, run func(args []string) error) *cobra.Command

func (c *adminClient) addValidate(add adder) {
	var strict bool
	validate := add("validate [<document>]", "Checks a configuration, or a document of rules against a configuration (- is stdin)", cobra.MaximumNArgs(1), func(args []string) error {
		if len(args) == 0 {
			return c.validateConfig()
		}
		return c.validate(args[0], strict)
	})
	validate.Example = `  caddy rate-limit validate --config /etc/caddy/Caddyfile
  caddy rate-limit validate rules.json
  caddy rate-limit validate rules.json --config /etc/caddy/Caddyfile`
	validate.Flags().BoolVar(&strict, "strict", false, "Fail also if the document names zones that the configuration does not have")
}

func (c *adminClient) addExplain(add adder) {
	var d Request
	var headers []string
	explain := add("explain <url>", "Shows which zones apply to a request and which rule would deny it; nothing is charged",
		cobra.ExactArgs(1), func(args []string) error {
			d.URL = args[0]
			return c.explain(d, headers)
		})
	explain.Example = `  caddy rate-limit explain https://example.com/api -H 'X-Account: 7' --client-ip 192.0.2.1
  caddy rate-limit explain localhost:8080/x -X POST
  caddy rate-limit explain /x --config Caddyfile`
	explain.Flags().StringVar(&c.rules, "rules", "", "With --config: apply the rules of this document")
	explain.Flags().StringVarP(&d.Method, "method", "X", http.MethodGet, "The request's method")
	explain.Flags().StringVar(&d.ClientIP, "client-ip", "127.0.0.1", "The client's address, as Caddy would determine it")
	explain.Flags().StringVar(&d.RemoteIP, "remote-ip", "", "The address of the connection's peer (default: --client-ip)")
	explain.Flags().StringVarP(&d.Body, "data", "d", "", "The request's body, for keys and costs with {body.<name>}; give its Content-Type with -H")
	for _, proto := range []string{"http1.0", "http1.1", "http2", "http3"} {
		explain.Flags().BoolFunc(proto, "Describe a request of this version (default: as curl sends it, HTTP/2 with TLS)", func(string) error {
			d.Proto = "http/" + strings.TrimPrefix(proto, "http")
			return nil
		})
	}
	explain.Flags().StringArrayVarP(&headers, "header", "H", nil, "A header, such as 'X-Account: 7'; may be repeated")
}

// rejectOthers makes other words than the subcommands of a command an error: cobra would print the
// help and succeed. help prints that of the subcommand behind it.
func rejectOthers(cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SilenceUsage = true
		if len(args) > 0 && args[0] == "help" {
			cmd, args, _ = cmd.Find(args[1:]) // what is none is left in args
			cmd.InitDefaultHelpFlag()
		}
		if len(args) == 0 || !cmd.HasSubCommands() {
			return cmd.Help()
		}
		return fmt.Errorf("unknown command %q: %s", args[0], option.Want(args[0], namesOf(cmd)))
	}
}

// namesOf returns the names of the subcommands of a command.
func namesOf(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() { // cobra adds help and completion later
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			names = append(names, sub.Name())
		}
	}
	return names
}

// docs is where the documentation is.
const docs = "https://github.com/dianalimiter/diana/tree/main/docs"

// finish completes the help of the command: it names all subcommands, and the documentation, and a wrong
// number of arguments or an unknown flag says how a subcommand is used.
func finish(root *cobra.Command) {
	root.Use = root.Name() + " " + strings.Join(namesOf(root), "|")
	root.SetHelpTemplate(`{{with (or .Long .Short)}}{{trim .}}

{{end}}{{.UsageString}}
Documentation: ` + docs + "\n")
	root.SetFlagErrorFunc(withUsage)
	for _, cmd := range append(root.Commands(), subcommands(root)...) {
		check := cmd.Args
		if check == nil {
			continue
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return withUsage(cmd, err)
			}
			return nil
		}
	}
}

func subcommands(root *cobra.Command) (list []*cobra.Command) {
	for _, cmd := range root.Commands() {
		list = append(list, cmd.Commands()...)
	}
	return list
}

// withUsage adds to an error how the command is used.
func withUsage(cmd *cobra.Command, err error) error {
	cmd.SilenceUsage = true
	text := cmd.UseLine()
	if cmd.Example != "" {
		text += "\n" + cmd.Example
	}
	return fmt.Errorf("%w: want\n  %s", err, text)
}

// maxAnswer is the size of the longest answer, in bytes. A thousand zones take 1 MiB.
const maxAnswer = 64 << 20

// send sends a request to the admin endpoint, decodes the answer into v, unless that is nil, and
// returns it with its header.
func (c *adminClient) send(method, path string, header http.Header, body io.Reader, v any) ([]byte, http.Header, error) {
	if c.config != "" {
		if _, _, err := Quiet("WARN"); err != nil {
			return nil, nil, err
		}
	}
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't determine admin API address: %w", err)
	}
	resp, err := caddycmd.AdminAPIRequest(address, method, Prefix+path, header, body)
	if err != nil {
		return nil, nil, explainError(err, address)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, err
	}
	if v == nil {
		return b, resp.Header, nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, nil, fmt.Errorf("the answer at %s is not from Caddy's admin endpoint: %w", address, err)
	}
	return b, resp.Header, nil
}

// asker sends a request to the admin API, decodes the answer into v, and returns it with its header.
type asker func(method, path string, header http.Header, body io.Reader, v any) ([]byte, http.Header, error)

// show prints the answer to a request, which is decoded into v: as JSON with --json, else by a
// template.
func show(c *adminClient, ask asker, method, path string, body io.Reader, v any, name string) error {
	text, _, err := ask(method, path, nil, body, v)
	switch {
	case err != nil:
	case c.json:
		_, err = c.out.Write(text)
	default:
		err = printAnswer(c.out, name, v)
	}
	return err
}

// search shows a key in all zones that have counted it, unless its first word is the name of a zone.
// It reports whether it did: a key of several parts that no zone has counted may be meant as a zone.
func (c *adminClient) search(parts []string, hash string) (bool, error) {
	if hash != "" {
		return false, nil
	}
	var zones Zones
	_, _, err := c.send(http.MethodGet, "zones", nil, nil, &zones)
	if err != nil || slices.ContainsFunc(zones.Zones, func(z Zone) bool { return z.Name == parts[0] }) {
		return false, err
	}
	return c.find(parts, len(parts) == 1, false)
}

// find shows a key in all zones that have counted it. It reports whether it did: without always, it does
// not if none has.
func (c *adminClient) find(parts []string, always, fleet bool) (bool, error) {
	q := url.Values{"part": parts}
	if fleet {
		q.Set("fleet", "")
	}
	var found Found
	text, _, err := c.send(http.MethodGet, "keys?"+q.Encode(), nil, nil, &found)
	switch {
	case err != nil || len(found.Keys) == 0 && !always:
		return false, err
	case c.json:
		_, err = c.out.Write(text)
		return true, err
	}
	return true, printAnswer(c.out, "found", &found)
}

func (c *adminClient) key(method, zone string, parts []string, hash string) error {
	q := url.Values{"part": parts}
	if hash != "" {
		if len(parts) > 0 {
			return fmt.Errorf("--hash %s beside parts: want one of them", safe(hash))
		}
		q = url.Values{"hash": {hash}}
	}
	var k limiter.Key
	err := show(c, c.send, method, "zones/"+url.PathEscape(zone)+"/key?"+q.Encode(), nil, &k, "key")
	if err == nil && k.Error != "" {
		return errors.New(k.Error)
	}
	return err
}

func (c *adminClient) explain(d Request, headers []string) error {
	d.Headers = make(map[string]config.Parts)
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("--header %q: want such as 'X-Account: 7'", h)
		}
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		d.Headers[name] = append(d.Headers[name], strings.TrimSpace(value))
	}
	body, err := json.Marshal(&d)
	if err != nil {
		return err
	}
	return show(c, c.ask, http.MethodPost, "explain", bytes.NewReader(body), new(Explanation), "explanation")
}

// maxDocument is how much of a document is read, in bytes: more than one may have, so that
// the answer says so.
const maxDocument = 2 << 20

// validate checks a document in a file. One that is invalid is an error, and with strict one
// that names zones that the configuration does not have.
func (c *adminClient) validate(path string, strict bool) error {
	text, err := readDocument(path)
	if err != nil {
		return err
	}
	var v Validation
	switch err := show(c, c.ask, http.MethodPost, "rules/validate", bytes.NewReader(text), &v, "validation"); {
	case err != nil:
		return err
	case !v.Valid:
		return fmt.Errorf("%s: %s", path, safe(v.Error))
	case strict && len(v.Unknown) > 0:
		return fmt.Errorf("%s: zones unknown here: %s", path, safeAll(v.Unknown))
	}
	return nil
}

// readDocument reads a document from a file; -: from stdin.
func readDocument(path string) ([]byte, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil { //nolint:gosec // the user's own file
			return nil, err
		}
		defer file.Close()
	}
	return io.ReadAll(io.LimitReader(file, maxDocument))
}
