package reference

import (
	"strings"

	"github.com/dianalimiter/diana/internal/limiter"
)

// What a reload with another value of an option does to the counts.
const (
	keeps  = "keeps the counts."
	anew   = "resets the zone's counts."
	others = "keeps the counts of keys that stay the same."
	joins  = "counts in the new store from zero; the counts in the old one stay there."
	near   = "keeps the counts, and reconnects."
	none   = "has no effect on counts."
)

// section is a block of options: what one type configures.
type section struct {
	title   string
	about   string
	typ     string   // <package>.<name> of the JSON type
	table   bool     // whether the options are rows of a table, without their examples
	context string   // a Caddyfile with %s in place of an example's line
	path    []string // where the type stands in the JSON of the context
	options []option
	groups  []group // how the options are divided; nil: not
}

// group is a part of a section's options, in the order of the page.
type group struct {
	title  string
	fields []string
}

// compat is the title of a group of options that only configurations of other plugins need.
const compat = "Of configurations of other plugins"

// option is a word of a section. Its JSON field is described by the field's comment.
type option struct {
	field    string // in JSON
	syntax   string // in the Caddyfile; empty: only in JSON
	example  string // a line, or lines, of the context
	reload   string
	document bool // whether a document of a rule source may change it
}

// headersSyntax is the option headers.
var headersSyntax = "headers " + strings.Join(limiter.HeaderFormats(), "|")

// ruleOptions are the options of a rule.
var ruleOptions = []option{
	{"name", "name <name>", "rule 100/1m name minute", keeps, true},
	{"limit", "rule <limit>/<window>", "rule 100/1m", keeps, true},
	{"limit_from", "rule {<placeholder>}/<window> else <limit>", "rule {vars.limit}/1m else 100", keeps, false},
	{"window", "rule <limit>/<window>", "rule 100/1m", anew, true},
	{"block", "rule <rate> [<algorithm>] block <duration>...", "rule 100/1m block 1h", keeps, true},
	{"max_wait", "rule <rate> [<algorithm>] max_wait <duration>", "rule 10/1s max_wait 500ms", keeps, true},
	{"notify", "rule <rate> [<algorithm>] notify <percent>...", "rule 5000000/month calendar notify 80 100", keeps, true},
	{"algorithm", "rule <rate> <algorithm> [<options of the algorithm>]", "rule 100/1m token_bucket", anew, true},
}

// ruleSyntax returns a line of a rule with all that may stand on it.
func ruleSyntax() string {
	line, name := "rule <rate> [<algorithm> [<options>]]", ""
	for _, o := range ruleOptions {
		if word, ok := strings.CutPrefix(o.syntax, "rule <rate> [<algorithm>] "); ok {
			line += " [" + word + "]"
		} else if o.field == "name" {
			name = " [" + o.syntax + "]"
		}
	}
	return line + name
}

// The contexts of examples.
const (
	inGlobal = "{\n\trate_limit {\n\t\t%s\n\t}\n}"
	inStore  = "{\n\trate_limit {\n\t\tstore redis localhost {\n\t\t\t%s\n\t\t}\n\t}\n}"
	inSite   = "{\n\trate_limit {\n\t\tstore redis localhost\n\t}\n}\n:80 {\n\trate_limit {\n\t\tzone z {\n\t\t\trule 10/s\n\t\t}\n\t\t%s\n\t}\n}"
	inZone   = ":80 {\n\trate_limit {\n\t\tzone z {\n\t\t\t%s\n\t\t\trule 100/1m\n\t\t}\n\t}\n}"
	alone    = ":80 {\n\trate_limit {\n\t\tzone z {\n\t\t\t%s\n\t\t}\n\t}\n}"
)

var (
	appPath     = []string{"apps", "rate_limit"}
	storePath   = append(appPath[:2:2], "stores", "0")
	sourcePath  = append(appPath[:2:2], "rules")
	handlerPath = []string{"apps", "http", "servers", "srv0", "routes", "0", "handle", "0"}
	zonePath    = append(handlerPath[:8:8], "zones", "0")
	rulePath    = append(zonePath[:10:10], "rules", "0")
)

// algorithm returns the section of an algorithm's options.
func algorithm(name, typ string, options ...option) section {
	return section{
		title: "Algorithm `" + name + "`", table: true, typ: "algorithms." + typ, context: alone,
		path: append(rulePath[:12:12], "algorithm"), options: options,
	}
}

// source returns the section of a rule source.
func ruleSource(name, typ string, options ...option) section {
	return section{title: "Rule source `" + name + "`", table: true, typ: "sources." + typ, context: inGlobal, path: sourcePath, options: options}
}

// sections are all blocks of options, in the order of the page.
var sections = []section{
	{
		title: "Global option `rate_limit`", typ: "diana.App", context: inGlobal, path: appPath,
		about: "In JSON, the app `rate_limit` in `apps`.",
		options: []option{
			{"stores", "store redis <address...> { <options of a store> }", "store redis localhost", joins, false},
			{"max_keys", "max_keys <n>", "max_keys 200000", keeps, false},
			{"headers", headersSyntax, "headers all", keeps, false},
			{"rules", "rules <source> <arguments> { <options of the source> }", "rules file limits.json", keeps, false},
		},
	},
	{
		title: "Store `redis`", typ: "redisconfig.Store", context: inStore, path: storePath,
		about: "In JSON, `\"store\": \"redis\"`, which may be left out.",
		options: []option{
			{"name", "name <name>", "name eu", joins, false},
			{"addresses", "store redis <address...>", "store redis localhost", joins, false},
			{"username", "username <user>", "username diana", near, false},
			{"password", "password <password>", "password {env.REDIS_PASSWORD}", near, false},
			{"db", "db <n>", "db 2", joins, false},
			{"cluster", "cluster", "cluster", near, false},
			{"sentinel", "sentinel <master> { <options> }", "sentinel main", near, false},
			{"tls", "tls { <options> }", "tls", near, false},
			{"key_prefix", "key_prefix <prefix>", "key_prefix shop", anew, false},
			{"key_secret", "key_secret <secret>", "key_secret {env.DIANA_SECRET}", anew, false},
			{"timeout", "timeout <duration>", "timeout 50ms", near, false},
			{"dial_timeout", "dial_timeout <duration>", "dial_timeout 5s", near, false},
			{"max_age", "max_age <duration>", "max_age 10m", near, false},
			{"pool_size", "pool_size <n>", "pool_size 40", near, false},
			{"on_failure", "on_failure local|allow|deny", "on_failure deny", near, false},
			{"fallback_share", "fallback_share auto|<fraction>", "fallback_share 0.25", near, false},
			{"lease", "lease <duration>", "lease 50ms", near, false},
		},
		groups: []group{
			{"Where it is", []string{"name", "addresses", "cluster", "sentinel", "db", "tls"}},
			{"Authentication", []string{"username", "password"}},
			{"Names of keys", []string{"key_prefix", "key_secret"}},
			{"Calls", []string{"timeout", "dial_timeout", "max_age", "pool_size", "lease"}},
			{"Outages", []string{"on_failure", "fallback_share"}},
		},
	},
	{
		title: "`sentinel` of a store", table: true, typ: "redisconfig.Sentinel", path: append(storePath[:4:4], "sentinel"), context: inStore,
		options: []option{
			{"master", "sentinel <master>", "sentinel main", near, false},
			{"username", "username <user>", "sentinel main {\n username watcher\n}", near, false},
			{"password", "password <password>", "sentinel main {\n password {env.SENTINEL_PASSWORD}\n}", near, false},
			{"plain", "plain", "sentinel main {\n plain\n}", near, false},
		},
	},
	{
		title: "`tls` of a store", table: true, typ: "redisconfig.TLS", path: append(storePath[:4:4], "tls"), context: inStore,
		options: []option{
			{"ca", "ca <file>", "tls {\n ca ca.pem\n}", near, false},
			{"cert", "cert <file>", "tls {\n cert client.pem\n}", near, false},
			{"key", "key <file>", "tls {\n key client-key.pem\n}", near, false},
			{"server_name", "server_name <name>", "tls {\n server_name redis.internal\n}", near, false},
			{"insecure_skip_verify", "insecure_skip_verify", "tls {\n insecure_skip_verify\n}", near, false},
		},
	},
	ruleSource("redis", "Redis",
		option{"key", "rules redis <key>", "rules redis diana:rules", keeps, false},
		option{"address", "address <url>", "rules redis diana:rules {\n address redis://localhost:6380\n}", keeps, false},
		option{"interval", "interval <duration>", "rules redis diana:rules {\n interval 10s\n}", keeps, false},
	),
	ruleSource("http", "HTTP",
		option{"url", "rules http <url>", "rules http https://rules.example.com/limits.json", keeps, false},
		option{"headers", "header <name> <value>", "rules http https://rules.example.com/limits.json {\n header Authorization \"Bearer {env.RULES_TOKEN}\"\n}", keeps, false},
		option{"ca", "ca <file>", "rules http https://rules.example.com/limits.json {\n ca /etc/ssl/private-ca.pem\n}", keeps, false},
		option{"interval", "interval <duration>", "rules http https://rules.example.com/limits.json {\n interval 10s\n}", keeps, false},
	),
	ruleSource("file", "File",
		option{"path", "rules file <path>", "rules file limits.json", keeps, false},
		option{"interval", "interval <duration>", "rules file limits.json {\n interval 10s\n}", keeps, false},
	),
	{
		title: "Directive `rate_limit`", typ: "diana.Handler", context: inSite, path: handlerPath,
		about: "`rate_limit [<matcher>] [<key>] <rate> [<algorithm>]`, or `rate_limit [<matcher>] { <options> }`. In JSON, the handler `rate_limit`. " +
			"The directive is ordered before `basic_auth`; `order rate_limit after forward_auth` in the global options, or `route`, changes that. " +
			"The directive `rate_limit_page [<matcher>]`, in JSON the handler `rate_limit_page`, serves the [live page](operating.md#on-a-site) read-only; it has no options, and is ordered after `forward_auth`. " +
			"The directive `rate_limit_quota [<matcher>] [<zone>...]`, in JSON the handler `rate_limit_quota` with `zones`, answers clients [what is left for them](recipes.md#tell-clients-what-is-left); it is ordered before `rate_limit`.",
		options: []option{
			{"zones", "zone <name> { <options of a zone> }", "zone other {\n rule 5/s\n}", keeps, false},
			{"headers", headersSyntax, "headers legacy", keeps, false},
			{"jitter", "jitter <fraction>", "jitter 0.2", keeps, false},
			{"log_key", "log_key", "log_key", keeps, false},
			{"disable_metrics", "disable_metrics", "disable_metrics", keeps, false},
			{"reject_status", "", "", keeps, false},
			{"rate_limits", "", "", keeps, false},
			{"distributed", "distributed { <options> }", "distributed", joins, false},
			{"sweep_interval", "sweep_interval <duration>", "sweep_interval 1m", none, false},
			{"storage", "storage <module> { <options> }", "storage file_system", none, false},
			{"key", "", "", others, false},
			{"rate", "", "", keeps, false},
			{"zone_size", "", "", keeps, false},
		},
		groups: []group{
			{"Zones", []string{"zones"}},
			{"Responses, logs and metrics", []string{"headers", "jitter", "reject_status", "log_key", "disable_metrics"}},
			{compat, []string{"rate_limits", "distributed", "sweep_interval", "storage", "key", "rate", "zone_size"}},
		},
	},
	{
		title: "`distributed` of a directive", table: true, typ: "compat.Distributed", context: inSite, path: append(handlerPath[:8:8], "distributed"),
		options: []option{
			{"read_interval", "read_interval <duration>", "distributed {\n read_interval 5s\n}", none, false},
			{"write_interval", "write_interval <duration>", "distributed {\n write_interval 5s\n}", none, false},
			{"purge_age", "purge_age <duration>", "distributed {\n purge_age 1m\n}", none, false},
		},
	},
	{
		title: "Zone", typ: "config.Zone", context: inZone, path: zonePath,
		options: []option{
			{"name", "zone <name>", "", anew, false},
			{"match", "match <matcher> [<arguments...>], match @<name>, or a block of matchers", "match path /api/*", keeps, false},
			{"exempt", "exempt <cidr...>|private_ranges|preflight, or as match", "exempt 10.0.0.0/8", keeps, false},
			{"key", "key <part...>", "key {client_ip} {path}", others, false},
			{"key_missing", "key_missing client_ip|share|skip|deny", "key_missing deny", others, false},
			{"key_repeated", "key_repeated deny|first|join", "key_repeated first", others, false},
			{"ipv4_prefix", "ipv4_prefix <bits>", "ipv4_prefix 24", others, false},
			{"ipv6_prefix", "ipv6_prefix <bits>", "ipv6_prefix 56", others, false},
			{"rules", ruleSyntax(), "", "keeps the counts if only limits, bursts or costs change; otherwise it resets the zone's counts.", true},
			{"algorithm", "algorithm <name>", "algorithm gcra", anew, false},
			{"in_flight", "in_flight <n>", "in_flight 5", keeps, false},
			{"in_flight_adaptive", "in_flight adaptive { <options> }", "in_flight adaptive", "keeps the limit that was found, within min and max.", false},
			{"linger", "linger <duration>", "in_flight 5\nlinger 30s", keeps, false},
			{"prevent_duplicates", "prevent_duplicates [<window>] [body]", "prevent_duplicates 10s body", keeps, false},
			{"cost", "cost <n>|<placeholder>", "cost {header.X-Cost}", keeps, false},
			{"settle", "settle <term...>", "settle {http.response.header.X-Tokens}", keeps, false},
			{"hold", "hold", "settle {response.body.usage.total_tokens}\nhold", keeps, false},
			{"tokens", "tokens [auto|openai|anthropic|gemini|ollama|cohere|bedrock|llamacpp] { <options> }", "tokens openai", keeps, false},
			{"group_by", "group_by <part...>", "tokens\ngroup_by {http.auth.user.id} {body.model}", "keeps the counts, and the costs by group if the parts stay the same.", false},
			{"unit", "unit <word>", "unit microdollars", keeps, false},
			{"max_body", "max_body <size>", "max_body 1MiB", keeps, false},
			{"count_status", "count_status <status...>", "count_status 401 403", keeps, false},
			{"max_wait", "max_wait <duration>", "max_wait 2s", keeps, false},
			{"max_waiting", "max_waiting <n>", "max_wait 2s\nmax_waiting 100", keeps, false},
			{"shadow", "shadow", "shadow", keeps, true},
			{"respond", "respond [<status>] [<body>] { <options> }", "respond 503", keeps, false},
			{"overrides", "override <part...> unlimited, override <part...> { <rules> }, or override { <options> }", "override 192.0.2.7 unlimited", keeps, true},
			{"store", "store <name>|local", "store local", joins, false},
			{"max_keys", "max_keys <n>", "max_keys 5000", keeps, false},
			{"max_events", "events <n>", "", keeps, false},
			{"window", "window <duration>", "", anew, false},
		},
		groups: []group{
			{"Which requests", []string{"name", "match", "exempt"}},
			{"Whom they are counted by", []string{"key", "key_missing", "key_repeated", "ipv4_prefix", "ipv6_prefix"}},
			{"Limits", []string{"rules", "algorithm", "overrides", "in_flight", "in_flight_adaptive", "linger", "prevent_duplicates"}},
			{"What a request costs", []string{"cost", "settle", "hold", "tokens", "group_by", "unit", "count_status", "max_body"}},
			{"What happens at the limit", []string{"respond", "max_wait", "max_waiting", "shadow"}},
			{"Where it is counted", []string{"store", "max_keys"}},
			{compat, []string{"max_events", "window"}},
		},
	},
	{
		title: "Rule", typ: "config.Rule", context: alone, path: rulePath,
		about:   "`rule <rate> [<algorithm>] [<options>]`, with the options, also those of the algorithm, on the line in any order, or in a block.",
		options: ruleOptions,
	},
	algorithm("fixed_window", "FixedWindow", option{"align", "align", "rule 100/1m fixed_window align", anew, true}),
	algorithm("sliding_window", "SlidingWindow", option{"buckets", "buckets <n>", "rule 1000/1h sliding_window buckets 60", anew, true}),
	algorithm("token_bucket", "TokenBucket",
		option{"burst", "burst <n>", "rule 100/1m token_bucket burst 20", keeps, true},
		option{"step", "step <duration>", "rule 100/1m token_bucket step 1s", anew, true},
	),
	algorithm("leaky_bucket", "LeakyBucket",
		option{"burst", "burst <n>", "rule 10/s leaky_bucket burst 20", keeps, true},
		option{"nodelay", "nodelay", "rule 10/s leaky_bucket nodelay", anew, true},
	),
	algorithm("calendar", "Calendar",
		option{"time_zone", "calendar [<time zone>]", "rule 5000000/month calendar Europe/Berlin", anew, true},
		option{"from", "from <day>", "rule 5000000/month calendar from 15", anew, true},
	),
	algorithm("gcra", "GCRA", option{"burst", "burst <n>", "rule 10/s gcra burst 20", keeps, true}),
	{
		title: "`prevent_duplicates` of a zone", table: true, typ: "config.PreventDuplicates", context: inZone, path: append(zonePath[:10:10], "prevent_duplicates"),
		options: []option{
			{"window", "prevent_duplicates <window>", "prevent_duplicates 10s", keeps, false},
			{"body", "prevent_duplicates [<window>] body", "prevent_duplicates body", keeps, false},
		},
	},
	{
		title: "`tokens` of a zone", typ: "config.Tokens", context: inZone, path: append(zonePath[:10:10], "tokens"),
		options: []option{
			{"format", "tokens auto|openai|anthropic|gemini|ollama|cohere|bedrock|llamacpp", "tokens anthropic", keeps, false},
			{"input", "input <weight> [above <n> <weight>]...", "tokens {\n input 1.25\n}", keeps, false},
			{"cached", "cached <weight> [above <n> <weight>]...", "tokens {\n cached 0.1\n}", keeps, false},
			{"cache_write", "cache_write <weight> [above <n> <weight>]...", "tokens {\n cache_write 1.25\n}", keeps, false},
			{"output", "output <weight> [above <n> <weight>]...", "tokens {\n output 4\n}", keeps, false},
			{"reserve", "reserve <n>|<placeholder>", "tokens {\n reserve 20\n}", keeps, false},
			{"ask_usage", "ask_usage", "tokens openai {\n ask_usage\n}", keeps, false},
		},
	},
	{
		title: "`in_flight adaptive` of a zone", typ: "config.Adaptive", context: inZone, path: append(zonePath[:10:10], "in_flight_adaptive"),
		options: []option{
			{"min", "min <n>", "in_flight adaptive {\n min 2\n}", keeps, false},
			{"max", "max <n>", "in_flight adaptive {\n max 200\n}", keeps, false},
			{"priority", "priority <placeholder>", "in_flight adaptive {\n priority {vars.priority}\n}", keeps, false},
			{"classes", "priority <placeholder> <class...>", "in_flight adaptive {\n priority {http.auth.user.tier} paid free\n}", keeps, false},
		},
	},
	{
		title: "`respond` of a zone", typ: "config.Respond", context: inZone, path: append(zonePath[:10:10], "respond"),
		options: []option{
			{"status", "respond <status>", "respond 503", keeps, false},
			{"body", "respond [<status>] <body>", "respond 429 \"Slow down.\"", keeps, false},
			{"problem", "problem", "respond {\n problem\n}", keeps, false},
			{"headers", "header <name> <value>", "respond {\n header X-Limited yes\n}", keeps, false},
		},
	},
	{
		title: "`override` of a zone", typ: "config.Override", context: inZone, path: append(zonePath[:10:10], "overrides", "0"),
		options: []option{
			{"key", "override <part...>", "override 192.0.2.0/24 unlimited", keeps, true},
			{"keys", "override { key <part...> }", "override {\n key 192.0.2.0/24\n key 198.51.100.7\n rule 1000/1m\n}", keeps, true},
			{"keys_file", "override { file <path> }", "override {\n file /etc/caddy/partners.txt\n rule 1000/1m\n}", keeps, false},
			{"unlimited", "override <part...> unlimited", "override 192.0.2.0/24 unlimited", keeps, true},
			{"rules", "override <part...> { <rules> }", "override 192.0.2.0/24 {\n rule 1000/1m\n}", keeps, true},
		},
	},
}
