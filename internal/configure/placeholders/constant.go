package placeholders

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// OfConstant returns the placeholder that a constant in a key was probably meant to be, such as
// {header.X-Api-Key} for X-Api-Key, or several; empty: the constant looks like no name of a header
// or of a placeholder.
func OfConstant(text string) string {
	if strings.HasPrefix(text, "args[") { // of a snippet
		return "{" + text + "}"
	}
	if m := calls.FindStringSubmatch(text); m != nil {
		return "{" + callers[strings.ToLower(m[1]+m[2])] + "." + m[3] + "}"
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;:|+&", r) })
	constants, sure := 0, false
	for i, word := range words {
		meant := ofWord(strings.Trim(word, "\"'<>()[]{}$%@.="))
		if meant == "" && strings.ContainsAny(word[:1], "$%") {
			meant = "{client_ip}" // a variable of another program
		}
		if meant == "" {
			constants++
			continue
		}
		sure = sure || strings.ContainsAny(word, "_-.$%")
		words[i] = meant
	}
	if constants > 0 && (constants == len(words) || !sure) {
		return ""
	}
	return strings.Join(words, " ")
}

// calls are the ways in which other programs name a header, a cookie or a parameter: header:X-Id,
// hdr(X-Id), %REQ(X-Id)%, request.headers["X-Id"], $arg_id.
var (
	calls   = regexp.MustCompile(`(?i)^\W*(?:(?:http|request|req|r)[._])*(?:(headers?|hdr|req|cookies?|query|args?|path)[:([]|(cookie|arg)_)\W*([\w-]+)\W*$`)
	callers = map[string]string{
		"header": "header", "headers": "header", "hdr": "header", "req": "header", "cookie": "cookie", "cookies": "cookie", "query": "query", "arg": "query", "args": "query",
		"path": "path",
	}
)

func ofWord(word string) string {
	lower := strings.ToLower(word)
	if strings.Contains(lower, ".") {
		return ofDotted(word, lower)
	}
	plain := separators.Replace(lower)
	if name := bareWords[plain]; name != "" {
		return "{" + name + "}"
	}
	if len(plain) >= len("clientip") { // the shorter ones are too close to other words
		for _, known := range longWords {
			if option.Distance(plain, known) == 1 {
				return "{" + bareWords[known] + "}"
			}
		}
	}
	if cut, ok := strings.CutPrefix(lower, "http_"); ok { // as CGI, and nginx, spell a header
		word = strings.ReplaceAll(cut, "_", "-")
	}
	switch {
	case Forwarding(word), addresses.MatchString(lower):
		return "{client_ip}"
	case looksLikeHeader(word):
		return "{header." + strings.ReplaceAll(word, "_", "-") + "}"
	}
	return ""
}

// addresses are in words for a client's address: client_ip/24, per-client-ip, client_ip_prefix.
var addresses = regexp.MustCompile(`(?:client|remote|real)[_-]?(?:ip|addr)(?:[^a-z]|$|prefix|address)`)

// ofDotted is ofWord for a word with a dot: a full name, or a shorthand with a name.
func ofDotted(word, lower string) string {
	root, _, _ := strings.Cut(lower, ".")
	switch {
	case strings.HasPrefix(lower, "remote.ip"):
		return "{client_ip}"
	case families[root], (root == "http" || root == "time" || root == "system") && Provided(lower):
		return "{" + word + "}"
	}
	for wrong, right := range mistakes {
		if rest, ok := strings.CutPrefix(lower, wrong); ok && (rest == "" || strings.HasSuffix(right, ".")) {
			return "{" + right + word[len(wrong):] + "}"
		}
	}
	switch {
	case root == "http" && (strings.HasPrefix(lower, "http.request.") || strings.Contains(lower, "_")): // no host has _
		return cmp.Or(meant(lower), "{http.request.header.<name>}")
	case root == "http":
		return meant(lower)
	}
	return ""
}

// InValue returns the placeholder that a value of a key, such as in an override, looks like, where
// placeholders are not replaced; empty: it looks like none. host says that the value is a host,
// which may be called header.example.
func InValue(text string, host bool) string {
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "{")
		name, next, closed := strings.Cut(after, "}")
		if !found || !closed {
			break
		}
		if isName.MatchString(name) || Provided(name) || ofWord(name) != "" {
			return "{" + name + "}"
		}
		rest = next
	}
	root, rest, dotted := strings.Cut(strings.ToLower(text), ".")
	known := root == "http" && strings.HasPrefix(rest, "request.") || dotted && families[root] && !strings.Contains(rest, ".") && isWord.MatchString(rest)
	if !host && (known || strings.Contains(text, "_") && bareWords[separators.Replace(root)] != "" && !dotted) {
		return ofWord(text)
	}
	return ""
}

var (
	isName = regexp.MustCompile(`^[a-z_%?]+$`)
	isWord = regexp.MustCompile(`^[\w-]+$`)
)

// families are the roots of shorthands that a name follows.
var families = map[string]bool{
	"header": true, "cookie": true, "query": true, "body": true, "path": true, "labels": true, "vars": true, "re": true, "rp": true, "resp": true, "err": true,
	"remote": true, "env": true,
}

var separators = strings.NewReplacer("_", "", "-", "")

// bareWords are the placeholders without a dot, and what else people call them, without
// separators, with what to write.
var bareWords = func() map[string]string {
	words := map[string]string{
		"remote": "client_ip", "port": "port", "uuid": "client_ip", "binaryremoteaddr": "client_ip", "remoteaddress": "client_ip", "ipaddress": "client_ip",
		"sourceip": "client_ip", "srcip": "client_ip", "clientaddress": "client_ip", "clientaddr": "client_ip", "peraddress": "client_ip", "perip": "client_ip",
		"userid": "http.auth.user.id", "username": "http.auth.user.id", "remoteuser": "http.auth.user.id",
		"requesturi": "uri", "uripath": "path", "requestpath": "path", "httphost": "host", "hostname": "host", "servername": "host", "requestmethod": "method",
		"header": "header.<name>", "cookie": "cookie.<name>", "origquery": "orig_query", "origdir": "orig_dir", "origfile": "orig_file",
	}
	for _, name := range shorthands {
		if !strings.HasSuffix(name, ".") {
			words[separators.Replace(name)] = name
		}
	}
	for wrong, right := range mistakes {
		if !strings.Contains(wrong, ".") {
			words[separators.Replace(wrong)] = right
		}
	}
	return words
}()

// longWords are the bareWords of which a misspelling is still recognized.
var longWords = func() (list []string) {
	for word := range bareWords {
		if len(word) >= len("clientip") {
			list = append(list, word)
		}
	}
	slices.Sort(list)
	return list
}()

// looksLikeHeader reports whether a word is the name of a header rather than a constant that
// somebody chose: X-Api-Key, Tenant-Id, user-agent, api_key.
func looksLikeHeader(word string) bool {
	lower := strings.ToLower(word)
	if plainHeaders[lower] {
		return true
	}
	if m := glued.FindStringSubmatch(lower); m != nil && holders[m[1]] {
		return true
	}
	words := strings.FieldsFunc(lower, func(r rune) bool { return r == '-' || r == '_' })
	if len(words) < 2 || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return false
	}
	return words[0] == "x" || plainHeaders[strings.Join(words, "-")] || canonical.MatchString(word) ||
		holders[words[0]] && identities[words[len(words)-1]]
}

// glued are names such as apikey and tenantid.
var glued = regexp.MustCompile(`^([a-z]+)(id|key|token|ip)$`)

var canonical = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(-[A-Z][A-Za-z0-9]*)+$`)

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for word := range strings.FieldsSeq(words) {
		m[word] = true
	}
	return m
}

// plainHeaders are headers that do not look like one otherwise.
var plainHeaders = set(`authorization proxy-authorization origin referer user-agent accept-language accept-encoding accept-charset content-type
	content-length content-encoding if-match if-none-match if-modified-since if-range cf-ray cf-ipcountry sec-fetch-site sec-fetch-mode sec-ch-ua set-cookie
	idempotency-key last-event-id stripe-signature traceparent forwarded`)

// holders and identities are how names such as tenant_id begin and end.
var (
	holders = set(`api access auth client tenant session user account device request customer org organization organisation team app application project
		visitor real remote source src consumer member subscription`)
	identities = set("id key token ip address addr agent secret")
)
