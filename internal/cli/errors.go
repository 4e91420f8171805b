package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"syscall"
)

// answered matches the error of caddycmd.AdminAPIRequest for an answer that is no success.
var answered = regexp.MustCompile(`(?s)^caddy responded with error: HTTP (\d+): (.*)$`)

// explainError returns an error of the admin API in the words of the command line. address is
// that of the admin endpoint.
func explainError(err error, address string) error {
	if err == nil {
		return nil
	}
	if m := answered.FindStringSubmatch(err.Error()); m != nil {
		return errors.New(inWords(m[1], m[2]))
	}
	text := err.Error()
	for _, refused := range []string{syscall.ECONNREFUSED.Error(), syscall.ENOENT.Error()} {
		if strings.Contains(text, refused) || errors.As(err, new(*net.OpError)) && strings.Contains(text, refused) {
			return fmt.Errorf("no Caddy answers at %s: is it running, with its admin endpoint there? Otherwise say where: --address <host:port>, or --config <file>", address)
		}
	}
	return err
}

// The errors of the API that name parts of a query, and what a command line has instead.
var queryWords = []struct {
	api  *regexp.Regexp
	here string
}{
	{regexp.MustCompile(`^(\d+) parts: want (\d+), each as part=\.\.\. of (\[.*\]), or hash=\.\.\. alone$`), `$1 parts: want $2 behind the zone, for $3, or --hash alone`},
	{regexp.MustCompile(`^part (\d+) is empty: `), `part $1 is empty: `},
	{regexp.MustCompile(`^hash ("(?:[^"\\]|\\.)*"): want a key in the form of zones/([^/]*)/top$`), `--hash $1: want a hash as caddy rate-limit top $2 prints it`},
	{regexp.MustCompile(`^zone ("(?:[^"\\]|\\.)*"): there is none of this name$`), `there is no zone $1: caddy rate-limit zones lists them`},
	{regexp.MustCompile(`^client_ip ("(?:[^"\\]|\\.)*"): `), `--client-ip $1: `},
	{regexp.MustCompile(`^remote_ip ("(?:[^"\\]|\\.)*"): `), `--remote-ip $1: `},
	{regexp.MustCompile(`^no rate_limit runs in this configuration$`), `this Caddy has no rate limits: a site gets one by a line such as rate_limit {client_ip} 10/s`},
}

// inWords returns an answer that is no success in the words of the command line.
func inWords(status, body string) string {
	var a struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(body), &a) != nil || a.Error == "" {
		if status == "404" {
			return "this Caddy has no rate limits: it was built without Diana, or is an old one"
		}
		return fmt.Sprintf("the answer is not from Caddy's admin endpoint: status %s, %q", status, body[:min(len(body), 200)])
	}
	for _, w := range queryWords {
		if w.api.MatchString(a.Error) {
			return w.api.ReplaceAllString(a.Error, w.here)
		}
	}
	return a.Error
}
