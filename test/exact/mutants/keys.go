//go:build unix

package main

// spelled are the suites that look at the form in which paths and hosts are counted.
var spelled = []suite{keys}

// keyMutants break the form in which paths and hosts are counted.
var keyMutants = []mutant{
	{
		name: "key-slashes", breaks: "doubled slashes of a path are another key", in: "key.foldPath", suites: spelled,
		old: `|| strings.Contains(p, "//") ||`, new: `||`,
	},
	{
		name: "key-dots", breaks: ". and .. in a path are another key", in: "key.foldPath", suites: spelled,
		old: `|| strings.Contains(p, "/.") ||`, new: `||`,
	},
	{
		name: "key-merge", breaks: "empty segments are kept when a path is cleaned", in: "key.foldPath", suites: spelled,
		old: "NormalizedPath(p, true)", new: "NormalizedPath(p, false)",
	},
	{
		name: "key-path-case", breaks: "the case of a path makes another key", in: "key.foldPath", suites: spelled,
		old: "\t\tp = caddyhttp.NormalizedPath(p, true)\n\t}\n\treturn lower(p)", new: "\t\tp = caddyhttp.NormalizedPath(p, true)\n\t}\n\treturn p",
	},
	{
		name: "key-bytes", breaks: "paths that are not UTF-8 become one", in: "key.lower", suites: spelled,
		old: "if utf8.ValidString(s) {", new: "if len(s) >= 0 {",
	},
	{
		name: "key-invalid-byte", breaks: "the replacement character is taken for an invalid byte (a dropped condition)", in: "key.lower", suites: spelled,
		old: "r == utf8.RuneError && n == 1", new: "r == utf8.RuneError",
	},
	{
		name: "key-root", breaks: "an empty path is no path", in: "key.rooted", suites: spelled,
		old: `if p == "" && method != http.MethodConnect {`, new: `if p == "x" && method != http.MethodConnect {`,
	},
	{
		name: "key-connect", breaks: "CONNECT has the path of the root", in: "key.rooted", suites: spelled,
		old: `if p == "" && method != http.MethodConnect {`, new: `if p == "" {`,
	},
	{
		name: "key-host-dot", breaks: "a final dot makes another host", in: "key.foldHost", suites: spelled,
		old: `strings.TrimLeft(host, "["), "].")`, new: `strings.TrimLeft(host, "["), "]")`,
	},
	{
		name: "key-host-brackets", breaks: "brackets make another host", in: "key.foldHost", suites: spelled,
		old: `strings.TrimLeft(host, "["), "].")`, new: `host, ".")`,
	},
	{
		name: "key-port-dot", breaks: "a final dot before a port makes another host", in: "key.foldHostPort", suites: spelled,
		old: `strings.TrimRight(s[:at], "."); len(host) < at`, new: `strings.TrimRight(s[:at], "."); len(host) > at`,
	},
	{
		name: "key-port-colons", breaks: "the last group of an IPv6 address is a port", in: "key.portAt", suites: spelled,
		old: "s[0] != '[' && strings.IndexByte(s, ':') != at:", new: "s[0] == '(':",
	},
	{
		name: "key-segment", breaks: "segments are counted from 1", in: "key.segment", suites: spelled,
		old: "for ; n > 0; n-- {", new: "for ; n > 1; n-- {",
	},
	{
		name: "key-label", breaks: "labels are counted from 1", in: "key.label", suites: spelled,
		old: "host, n = host[:at], n-1", new: "host, n = host[:at], n-2",
	},
	{
		name: "key-lookup-constant", breaks: "a text that does not begin as the part does is folded", in: "key.Template.extent", suites: spelled,
		old: "return len(p.text), strings.HasPrefix(s, p.text)", new: "return min(len(s), len(p.text)), true",
	},
	{
		name: "key-lookup-suffix", breaks: "the text behind a value is taken for a part of it", in: "key.Template.extent", suites: spelled,
		old: "return len(s) - len(suffix), strings.HasSuffix(s, suffix)", new: "return len(s) - 0*len(suffix), true",
	},
	{
		name: "key-lookup-ambiguous", breaks: "a value whose end is not known is cut at the first slash", in: "key.Template.extent", suites: spelled,
		old: "return n, n >= 0 && strings.IndexByte(p.without, end) >= 0", new: "return n, n >= 0",
	},
}
