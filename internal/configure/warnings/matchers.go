package warnings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/configure/placeholders"
)

// OfMatchers warns of patterns that match something else than they look like, mostly nothing. mapped
// are the variables that map defines; of says whose matchers they are.
func OfMatchers(warn Warn, sets caddyhttp.MatcherSets, mapped map[string]bool, of zap.Field) {
	tell := func(matcher, pattern, advice string) {
		if advice != "" {
			warn("a pattern of a matcher does not match what it looks like", of, zap.String("matcher", matcher), zap.String("pattern", pattern), zap.String("advice", advice))
		}
	}
	for _, set := range sets {
		for _, m := range set {
			switch m := m.(type) {
			case *caddyhttp.MatchPath:
				for _, pattern := range *m {
					tell("path", pattern, wrongPath(pattern, mapped))
				}
			case *caddyhttp.MatchHost:
				for _, pattern := range *m {
					tell("host", pattern, wrongHost(pattern))
				}
			case *caddyhttp.MatchMethod:
				for _, pattern := range *m {
					tell("method", pattern, wrongList(pattern))
				}
			case *caddyhttp.MatchPathRE:
				tell("path_regexp", m.Pattern, wrongRegexp(m.Pattern))
			case *caddyhttp.MatchURLPattern:
				tell("url_pattern", m.Pattern, wrongURLPattern(m.Pattern, m.BaseURL != ""))
			case *caddyhttp.MatchQuery:
				for name, values := range *m {
					tell("query", name+"="+strings.Join(values, " "), wrongQuery(values))
				}
			case *caddyhttp.MatchNot:
				for _, set := range m.MatcherSets {
					OfMatchers(warn, caddyhttp.MatcherSets{set}, mapped, of)
				}
			}
		}
	}
}

const bySpaces = "separate patterns by spaces"

var (
	lists       = regexp.MustCompile(`[,;|](?:$|\s|[/*])|\s[/*]`)
	expressions = regexp.MustCompile(`^\^|\$$|\\|\.\+|\)[*+?]|\]\+|/\([^)]*\|`)
	variables   = regexp.MustCompile(`\{([^{}]*)\}`)
	parameters  = regexp.MustCompile(`[&,;]\w+=`)
	groups      = regexp.MustCompile(`\{[\w.-]+\}(?:$|[^?*+])`)
)

// wrongPath returns what to write in place of a pattern of the path matcher; empty: it may be meant.
func wrongPath(pattern string, mapped map[string]bool) string {
	switch {
	case expressions.MatchString(pattern):
		return "write path_regexp: a path is no regular expression"
	case lists.MatchString(pattern):
		return bySpaces
	case strings.Contains(pattern, "://"):
		return "write the path alone, which begins with /: a host is for the matcher host"
	case !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "*") && !strings.HasPrefix(pattern, "{"):
		return "begin the path with /, or * for any beginning"
	}
	for _, m := range variables.FindAllStringSubmatch(pattern, -1) {
		if !mapped[m[1]] && !placeholders.Provided(m[1]) {
			return "write * for a segment of any name: nothing provides " + m[0]
		}
	}
	return ""
}

// wrongHost is wrongPath for the host matcher.
func wrongHost(pattern string) string {
	colon := strings.LastIndexByte(pattern, ':')
	switch {
	case strings.ContainsAny(pattern, ",;| "):
		return bySpaces
	case strings.Contains(pattern, "/"):
		return "write the host alone, without a scheme and a path"
	case colon > 0 && strings.Count(pattern, ":") == 1 && !strings.Contains(pattern, "{"):
		return "write the host without a port"
	}
	return ""
}

// wrongList is wrongPath for the method matcher.
func wrongList(pattern string) string {
	if strings.ContainsAny(pattern, ",;|/ ") {
		return bySpaces
	}
	return ""
}

// wrongRegexp is wrongPath for the path_regexp matcher.
func wrongRegexp(pattern string) string {
	if strings.HasSuffix(strings.TrimSuffix(pattern, "$"), "/*") {
		return "write the matcher path: in a regular expression /* is any number of slashes"
	}
	return ""
}

// wrongURLPattern is wrongPath for the url_pattern matcher. based is whether it has a base_url.
func wrongURLPattern(pattern string, based bool) string {
	absolute := based || strings.Contains(pattern, "://")
	switch {
	case strings.HasPrefix(pattern, "^"), strings.HasSuffix(pattern, "$"):
		return "write it without ^ and $: a pattern matches the whole path"
	case !absolute && (pattern == "" || !strings.ContainsAny(pattern[:1], "/*{(?#")):
		return "begin the pattern with /, or with a scheme and a host, as https://example.com/"
	case strings.Contains(pattern, "#") && !strings.HasSuffix(pattern, "#*"):
		return "write the pattern without # and what follows, which clients do not send"
	case groups.MatchString(pattern):
		return "write :id for a segment of any name: {id} is the text id"
	}
	return ""
}

// wrongQuery is wrongPath for the values of a parameter of the query matcher.
func wrongQuery(values []string) string {
	if slices.ContainsFunc(values, parameters.MatchString) {
		return "separate parameters by spaces"
	}
	return ""
}

// readBy returns the placeholders of the headers and variables that matchers read.
func readBy(lists ...caddyhttp.MatcherSets) (names []string) {
	for _, sets := range lists {
		for _, set := range sets {
			for _, m := range set {
				names = append(names, readByOne(m)...)
			}
		}
	}
	return names
}

func readByOne(m any) (names []string) {
	variable := func(name string) {
		if placeholder, ok := strings.CutPrefix(name, "{"); ok {
			names = append(names, strings.TrimSuffix(placeholder, "}"))
		} else {
			names = append(names, "http.vars."+name)
		}
	}
	switch m := m.(type) {
	case *caddyhttp.MatchHeader:
		for field := range *m {
			names = append(names, requestHeader+field)
		}
	case *caddyhttp.MatchHeaderRE:
		for field := range *m {
			names = append(names, requestHeader+field)
		}
	case *caddyhttp.VarsMatcher:
		for name := range *m {
			variable(name)
		}
	case *caddyhttp.MatchVarsRE:
		for name := range *m {
			variable(name)
		}
	case *caddyhttp.MatchExpression:
		for _, found := range variables.FindAllStringSubmatch(m.Expr, -1) {
			names = append(names, found[1])
		}
	case *caddyhttp.MatchNot:
		names = readBy(m.MatcherSets)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
