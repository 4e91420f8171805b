package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// explainError returns the error of an answer of the admin API, or says where no Caddy
// answers. address is the admin endpoint's.
func explainError(err error, address string) error {
	text := err.Error()
	if answer, ok := strings.CutPrefix(text, "caddy responded with error: HTTP "); ok {
		status, body, _ := strings.Cut(answer, ": ")
		var a struct {
			Error string `json:"error"`
		}
		switch {
		case json.Unmarshal([]byte(body), &a) == nil && a.Error != "":
			return errors.New(a.Error)
		case status == "404":
			return errors.New("this Caddy has no rate limits: it was built without Diana, or is an old one")
		}
		return fmt.Errorf("the answer is not from Caddy's admin endpoint: status %s, %q", status, body[:min(len(body), 200)])
	}
	if strings.Contains(text, syscall.ECONNREFUSED.Error()) || strings.Contains(text, syscall.ENOENT.Error()) {
		return fmt.Errorf("no Caddy answers at %s: is it running, with its admin endpoint there? Otherwise say where: --address <host:port>, or --config <file>", address)
	}
	return err
}
