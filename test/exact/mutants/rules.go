//go:build unix

package main

// documents is the suite of the documents of rules.
var documents = suite{"documents", "rules", "DIANA_OPS=4000", [][]string{{"-test.run=."}}}

// following is the suite of what follows sources.
var following = suite{"following", "internal/follow", "DIANA_OPS=4000", [][]string{{"-test.run=."}}}

// ruleSources is the suite of the sources of rules.
var ruleSources = suite{"rules", "rules/sources", "DIANA_OPS=4000", [][]string{
	{"-test.skip=^Test(Sources|FrequentChanges|HTTPHostileServers)$"}, // which wait for real time
	{"-test.run=^TestSources$/^(file|http)$"},
}}

// ruleMutants break following a document, and writing one.
var ruleMutants = []mutant{
	{
		name: "rules-all-enabled", breaks: "a zone that is enabled wins over \"*\"", in: "config.Document.Of", suites: []suite{documents},
		old: "if d.All.Enabled != nil {", new: "if d.All.Enabled != nil && all.Enabled == nil {",
	},
	{
		name: "rules-all-shadow", breaks: "a zone that is no shadow wins over \"*\"", in: "config.Document.Of", suites: []suite{documents},
		old: "if d.All.Shadow != nil {", new: "if d.All.Shadow != nil && all.Shadow == nil {",
	},
	{
		name: "rules-twice", breaks: "the last of several members of a name counts", in: "rules.members", suites: []suite{documents},
		old: "case seen[name]:", new: "case seen[name] && false:",
	},
	{
		name: "rules-utf8", breaks: "bytes that are not UTF-8 are read as another character", in: "rules.CheckUTF8", suites: []suite{documents},
		old: "r == utf8.RuneError && size == 1", new: "r == utf8.RuneError && size == 0",
	},
	{
		name: "rules-all-on", breaks: "\"*\" turns zones on that are off", in: "rules.checkAll", suites: []suite{documents},
		old: "case z.Enabled != nil && *z.Enabled:", new: "case z.Enabled != nil && *z.Enabled && false:",
	},
	{
		name: "rules-empty-error", breaks: "a source that never had a document is an error", in: "follow.Follower.Failed", suites: []suite{following, ruleSources},
		old: "if !f.had {", new: "if !f.had && false {",
	},
	{
		name: "rules-gone-empty", breaks: "a source whose document is gone is empty", in: "follow.Follower.apply", suites: []suite{following, ruleSources},
		old: "f.good, f.text, f.had = d, text, true", new: "f.good, f.text = d, text",
	},
	{
		name: "rules-restart-empty", breaks: "after a restart a document that is gone was never there", in: "follow.New", suites: []suite{following, ruleSources},
		old: "\tf.had = true\n", new: "",
	},
	{
		name: "rules-seen", breaks: "a document that is there again as it was is taken for unchanged", in: "follow.watcher.read", suites: []suite{ruleSources},
		old: "w.fails, w.seen = 0, false", new: "w.fails = 0",
	},
	{
		name: "rules-etag", breaks: "a document that is there again is not asked for", in: "sources.HTTP.Fetch", suites: []suite{ruleSources},
		old: "\t\th.etag = \"\"\n\t\treturn", new: "\t\treturn",
	},
	{
		name: "rules-etag-cut", breaks: "a document that was cut is not asked for again", in: "sources.HTTP.Fetch", suites: []suite{ruleSources},
		old: "if !json.Valid(text) {", new: "if len(text) == 0 {",
	},
	{
		name: "rules-reload-before", breaks: "a reload returns to the document that was in force when it began", in: "follow.Follower.Lead", suites: []suite{following, ruleSources},
		old: "if f.invalid != nil && f.text != nil {", new: "if f.invalid == nil && f.text == nil {",
	},
	{
		name: "rules-report-locked", breaks: "what a configuration reports of new rules is reported with a lock held", in: "follow.Follower.try", suites: []suite{limiterTests},
		old: "f.reports = append(f.reports, report)", new: "report()",
	},
	{
		name: "rules-private", breaks: "plain http goes anywhere", in: "sources.onlyPrivate", suites: []suite{ruleSources},
		old: "return checkPrivate(at.Addr())", new: "_ = at\n\treturn nil",
	},
	{
		name: "rules-mapped", breaks: "an IPv4-mapped address is not private", in: "sources.checkPrivate", suites: []suite{ruleSources},
		old: "addr = addr.Unmap()", new: "_ = addr.Unmap()",
	},
	{
		name: "rules-proxy", breaks: "plain http uses a proxy", in: "sources.newTransport", suites: []suite{ruleSources},
		old: "t.Proxy, t.DialContext = nil, d.DialContext", new: "t.DialContext = d.DialContext",
	},
	{
		name: "rules-replace-any", breaks: "a document is replaced though it is another", in: "sources.Redis.Replace", suites: []suite{ruleSources},
		old: "if !may(old) {", new: "if !may(old) && false {",
	},
	{
		name: "rules-replace-raced", breaks: "a document written between comparison and write is lost", in: "sources.Redis.Replace", suites: []suite{ruleSources},
		old: "if errors.Is(err, redis.Nil) {", new: "if err = nil; errors.Is(err, redis.Nil) {",
	},
	{
		name: "rules-replace-queued", breaks: "commands are executed though MULTI is not permitted", in: "sources.transact", suites: []suite{ruleSources},
		old: "if err := tx.Process(ctx, multi); err != nil {\n\t\treturn err\n\t}", new: "_ = tx.Process(ctx, multi)",
	},
}
