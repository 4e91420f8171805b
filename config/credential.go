package config

import (
	"regexp"
	"slices"
	"strings"
)

// isCredential reports whether a placeholder's value lets whoever reads it send requests as another, by
// its name: that of a header, a cookie, a parameter, a field of the body or a variable. A whole query, or
// an address that has it, may have one in it.
func isCredential(placeholder string) bool {
	name, _, _ := strings.Cut(placeholder, ":") // with a default
	for _, whole := range []string{"http.request.uri", "http.request.orig_uri"} {
		if rest, ok := strings.CutPrefix(name, whole); ok && (rest == "" || rest == "_escaped" || slices.Contains([]string{".query", ".query_escaped", ".prefixed_query"}, rest)) {
			return true
		}
	}
	if strings.HasPrefix(name, "http.request.cookie.") || strings.HasPrefix(name, "file.") {
		return true
	}
	if strings.HasPrefix(name, "http.request.tls.") || strings.HasPrefix(name, "http.request.uri.path") {
		return false // what a certificate says is public
	}
	name = strings.TrimRight(name, "[]") // of a form: user[token]
	return secretName(name[strings.LastIndexAny(name, ".[")+1:])
}

var (
	glued     = regexp.MustCompile(`^(?:x|api|app|access|auth|client|private|secret|session|security|service|account|admin|bearer|refresh|subscription|license|user|csrf|xsrf|id|web|hook|php|j|asp|master|my|the)+(key|token|secret|auth|sess|sessid|sessionid|sid|password|passwd|pass|pwd)$`)
	upper     = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	separated = regexp.MustCompile(`[^a-z]+`)
)

// secretName reports whether a name, such as X-Auth-Token, apiKey or access_token, is that of a
// credential: its last word says so.
func secretName(name string) bool {
	spaced := upper.ReplaceAllString(name, "$1$3 $2$4")
	words := slices.DeleteFunc(separated.Split(strings.ToLower(spaced), -1), func(w string) bool { return w == "" || w == "value" || w == "hash" })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	before := ""
	if len(words) > 1 {
		before = words[len(words)-2]
	}
	switch last {
	case "key":
		return !slices.Contains(publicKeys, before)
	case "id":
		return before == "session" || before == "sess"
	}
	return slices.Contains(secrets, last) || glued.MatchString(last) || glued.MatchString(strings.ToLower(before+last))
}

var (
	secrets = strings.Fields(`apikey authkey token secret password passwd passphrase passcode pass pwd authorization authentication auth jwt bearer credential credentials
		cookie session sessid sessionid sid signature sig hmac otp totp pin csrf xsrf assertion dpop jws jwe saml samlresponse privatekey secretkey accesskey nonce ticket`)

	// publicKeys come before key in names that are no credentials.
	publicKeys = strings.Fields("cache idempotency partition sort public foreign primary row routing shard group object index map")
)
