package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// calls calls see for every call in files that are no tests, with the name of the function and the
// arguments.
func (p *page) calls(pattern string, see func(name string, args []ast.Expr)) {
	for _, text := range p.files(pattern) {
		f, err := parser.ParseFile(token.NewFileSet(), pattern, text, parser.SkipObjectResolution)
		if err != nil {
			p.lacks("%v", err)
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				switch fun := c.Fun.(type) {
				case *ast.Ident:
					see(fun.Name, c.Args)
				case *ast.SelectorExpr:
					see(fun.Sel.Name, c.Args)
				}
			}
			return true
		})
	}
}

// literal returns the value of a text in the code, also behind a constant.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		return literal(e.Y)
	}
	return "", false
}

// literals returns the texts of a list in the code.
func literals(e ast.Expr) (all []string) {
	if c, ok := e.(*ast.CompositeLit); ok {
		for _, x := range c.Elts {
			if s, ok := literal(x); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

func (p *page) placeholders() {
	p.line("## Placeholders\n")
	p.line("They cost nothing where nobody reads them.\n")
	_, table, ok := strings.Cut(p.source.docs["diana.Handler"], "Placeholders:\n\n")
	if !ok {
		p.lacks("the comment of Handler has no placeholders")
	}
	p.line("%s", table)
}

// event is an event, and what says when it is emitted.
type event struct{ name, when, data string }

var events = []event{
	{"rate_limit_blocked", "a denial blocks a key by a rule with `block`, once for each block, at most 100 a second for each zone", "the fields of the log line `key blocked`, of which `wait` is how long the block lasts"},
	{"rate_limit_braked", "`in_flight adaptive` halves its limit, because most requests failed slowly, at most once a minute for each zone", "`zone`, `from`, `limit` and `reason`"},
	{"rate_limit_exceeded", "a request is denied, at most 100 a second for each zone", "the fields of the log line `rate limit exceeded`"},
	{"rate_limit_reached", "a charge takes what a key has used across a percentage of `notify`, at most 100 a second for each zone", "`zone`, `rule`, `percent`, `limit`, `used`, and `key` with `log_key`"},
	{"rate_limit_shadow_exceeded", "a zone in shadow would deny a request, at most 100 a second for each zone", "the same fields"},
	{"rate_limit_store_down", "a store, or a node of its Cluster, becomes unavailable", "`store`, `error`, `advice`, and `node` in a Cluster"},
	{"rate_limit_store_up", "it is used again", "`store`, and `node` in a Cluster"},
}

func (p *page) events() {
	p.line("## Events\n")
	p.line("Events of [Caddy's app `events`](https://caddyserver.com/docs/json/apps/events/). Their handlers delay no request.\n")
	p.line("| event | when | data |\n|---|---|---|")
	for _, e := range events {
		p.line("| `%s` | %s | %s |", e.name, e.when, e.data)
	}
	p.line("")
	name := regexp.MustCompile(`"(rate_limit_[a-z_]+)"`)
	for _, pattern := range []string{"*.go", "internal/limiter/*.go"} {
		for _, found := range p.grep(pattern, name) {
			if !slices.ContainsFunc(events, func(e event) bool { return e.name == found }) && !slices.Contains(notEvents, found) {
				p.lacks("event %s has no entry", found)
			}
		}
	}
}

// notEvents are other texts that begin as events do.
var notEvents = []string{"rate_limit_page", "rate_limit_quota"}

var logFields = map[string]string{
	"zone": "name of the zone", "rule": "name or number of the rule that denied", "cause": "why it did, below", "wait": "until the request would be admitted, in seconds",
	"remote_ip": "address that the connection comes from", "client_ip": "the client's address, as Caddy determines it",
	"method": "method", "host": "host", "key": "parts of the key; only with `log_key`",
	"advice":     "", // of another line
	"suppressed": "how many lines or events were left out before this one; absent if none",
}

// causes has the words for why a request is denied.
func (p *page) causes() {
	p.line("### Causes\n")
	p.line("Log lines, the access log, `{http.rate_limit.exceeded.cause}`, `caddy_rate_limit_denied_total`, `explain`, `key` and `top` say why a request was denied in one word:\n")
	p.line("| cause | meaning |\n|---|---|")
	const file = "internal/metrics/cause.go"
	meanings := p.grep(file, regexp.MustCompile(`\tCause\w+ .*// (.*)`))[1:]
	for i, word := range p.grep(file, regexp.MustCompile(`"([a-z_]+)",`)) {
		p.line("| `%s` | %s |", word, meanings[i])
	}
	p.line("")
}

func (p *page) logs() {
	p.line("## Log fields\n")
	p.line("The logger `http.handlers.rate_limit` has a line `rate limit exceeded` at level INFO for each denied request, and a line `rate limit would be exceeded` for each that a zone in shadow would deny, at most 100 a second for each zone:\n")
	p.line("| field | meaning |\n|---|---|")
	seen := make(map[string]bool)
	field := regexp.MustCompile(`zap\.(?:String|Duration|Uint64)\("([a-z_]+)"`)
	for _, name := range append(p.grep("internal/limiter/log.go", field), p.grep("internal/limiter/tell.go", field)...) {
		meaning, ok := logFields[name]
		if !ok {
			p.lacks("log field %s has no entry", name)
		}
		if !seen[name] && meaning != "" {
			p.line("| `%s` | %s |", name, meaning)
		}
		seen[name] = true
	}
	for name := range logFields {
		if !seen[name] {
			p.lacks("log field %s is nowhere in the code", name)
		}
	}
	p.line("\nThe access log line of a request that a zone denied or delayed, or would if it were not in shadow, has `rate_limit` with `zone`, `rule`, `decision` and, if it was denied, `cause`. That of a request to zones with `settle` or `tokens` has `cost`, what `zone` charged for it in the end, and `costs` by zone if there are others.\n")
	p.line("With [`tracing`](https://caddyserver.com/docs/caddyfile/directives/tracing), the span of a request has the attributes `rate_limit.zone`, `rate_limit.decision` and, if it was denied, `rate_limit.cause`.\n")
	p.causes()
}

// metric is a metric in the code.
type metric struct {
	name, help string
	labels     []string
}

func (p *page) metrics() {
	var all []metric
	add := func(name, help ast.Expr, labels []string) {
		n, ok := literal(name)
		h, ok2 := literal(help)
		if ok && ok2 {
			all = append(all, metric{strings.TrimPrefix(n, "_"), h, labels})
		}
	}
	p.calls("internal/metrics/*.go", func(name string, args []ast.Expr) {
		switch name {
		case "counter", "desc":
			if len(args) > 1 {
				add(args[0], args[1], literals(&ast.CompositeLit{Elts: args[2:]}))
			}
		case "NewCounter", "NewHistogramVec":
			var labels []string
			if len(args) > 1 {
				labels = literals(args[1])
			}
			if name, help := keyed(args[0], "Name"), keyed(args[0], "Help"); name != nil && help != nil {
				add(name, help, labels)
			}
		}
	})
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	p.line("## Metrics\n")
	p.line("In Caddy's registry, at the admin endpoint's `/metrics`. No label has a value that clients choose, except `group`, which is bounded.\n")
	p.line("| metric | labels | meaning |\n|---|---|---|")
	for _, m := range all {
		p.line("| `caddy_rate_limit_%s` | %s | %s |", m.name, strings.Join(m.labels, ", "), m.help)
	}
	p.line("\n`decision` is as the placeholder `{http.rate_limit.<zone>.decision}`: `denied_elsewhere` says that another zone denied, and `left` that the client left " +
		"while it waited. `cause` is one of the [causes](#causes). The [kinds of errors](failure.md#for-every-fault) and the [reasons of what is not charged](failure.md#debts) " +
		"are described with failures. Checks divided by calls are the size of a batch.\n")
}

// keyed returns the value of a field in a composite literal.
func keyed(e ast.Expr, name string) ast.Expr {
	c, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, x := range c.Elts {
		if kv, ok := x.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

func (p *page) commands() {
	p.line("## Commands\n")
	p.line("`caddy rate-limit <command>` asks the admin endpoint of a running Caddy. Errors are printed, with exit status 1, or 2 if `replay` cannot decide.\n")
	p.line("| command | does |\n|---|---|")
	var flags []string
	command := func(use, short string) { p.line("| `%s` | %s |", strings.ReplaceAll(use, "|", `\|`), short) }
	p.calls("internal/ops/cli/*.go", func(name string, args []ast.Expr) {
		texts := make([]string, len(args))
		for i, a := range args {
			texts[i], _ = literal(a)
		}
		switch {
		case name == "add" && len(args) == 4 && texts[1] != "":
			command(texts[0], texts[1])
		case name == "edits" && len(args) == 5:
			command(texts[0]+" "+texts[1], texts[2])
		case name == "sub" && len(args) == 5:
			command("rules "+texts[0], texts[1])
		case strings.HasSuffix(name, "VarP") && len(args) == 5:
			flags = append(flags, "| `--"+texts[1]+"`, `-"+texts[2]+"` | "+marked(texts[4])+" |")
		case strings.HasSuffix(name, "Var") && len(args) == 4 && texts[3] != "":
			flags = append(flags, "| `--"+texts[1]+"` | "+marked(texts[3])+" |")
		}
	})
	const replay = "internal/ops/cli/replay.go"
	command(p.grep(replay, regexp.MustCompile(`Use: +"(.*)"`))[0], p.grep(replay, regexp.MustCompile(`Short: +"(.*)"`))[0])
	p.line("\n| flag | meaning |\n|---|---|")
	slices.Sort(flags)
	for _, f := range slices.Compact(flags) {
		p.line("%s", f)
	}
	p.line("")
}

func (p *page) environment() {
	p.line("## Environment\n")
	p.line("Diana reads no environment variable of its own. `{env.*}` and `{file.*}` are replaced when the configuration is loaded, in every text of a store and of a rule source; one that is replaced by nothing is an error.")
}

// grep returns what the first group of an expression matches in files.
func (p *page) grep(pattern string, e *regexp.Regexp) (found []string) {
	for _, text := range p.files(pattern) {
		for _, m := range e.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
	}
	return found
}
