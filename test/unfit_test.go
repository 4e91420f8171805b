package test

import (
	"fmt"
	"strings"
	"testing"
)

// TestKeysThatLimitNobody checks that a key with a placeholder that is new with each request, or
// empty for all, is an error.
func TestKeysThatLimitNobody(t *testing.T) {
	for key, why := range map[string]string{
		"{remote}": "new with each request", "{remote_port}": "new with each request", "{http.request.uuid}": "new with each request",
		"{time.now}": "new with each request", "{time.now.unix}": "new with each request", "{http.request.duration}": "new with each request",
		"a-{http.request.duration_ms}": "new with each request",
		"{http.time_until_shutdown}":   "new with each request",
		"{system.now}":                 "Caddy does not have it", "{system.hostname}": "",
		"{http.response.header.X}": "empty until the request has passed", "{err.status_code}": "empty until the request has passed",
		"{header.}": "its name is missing", "{cookie.}": "its name is missing", "{query.}": "its name is missing",
		"{remote_host}": "", "{http.request.remote.host}": "", "{header.X}": "", "{remote.port}": "", // of another plugin
	} {
		site := fmt.Sprintf("rate_limit {\nzone z {\nkey %s {client_ip}\nrule 10/s\n}\n}", key)
		err := newSite(t).load(setup{site: site})
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", key, err, why)
		}
	}
}

// TestOverridesOfNoAddress checks that an override in a zone by address is an address or a
// network, as the keys of lists are.
func TestOverridesOfNoAddress(t *testing.T) {
	const noAddress = "is no client's address: want an address, a CIDR or *"
	for key, want := range map[string]string{
		"127.0.0.0/33": "prefix 33: want 0 to 32", "::1/129": "prefix 129: want 0 to 128",
		"127.0.0.01": noAddress, "10.0.0": noAddress, "localhost": noAddress,
		"127.0.0.1": "", "127.0.0.0/8": "", "::1": "", "*": "",
	} {
		err := newSite(t).load(setup{site: "rate_limit {\nzone z {\nrule 10/s\noverride " + key + " unlimited\n}\n}"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("override %s: %v", key, err)
		}
	}
}

// TestOptionsThatSayNothing checks that what would exempt everybody, or reach no Redis, is an
// error.
func TestOptionsThatSayNothing(t *testing.T) {
	for option, want := range map[string]string{
		`"exempt": [{}]`:                           "exempt 1: it matches every request",
		`"exempt": [null]`:                         "exempt 1: it matches every request",
		`"exempt": [{"not": []}]`:                  "exempt 1: it matches every request",
		`"exempt": [{"method": ["GET"]}, {}]`:      "exempt 2: it matches every request",
		`"exempt": [{"not": [], "method": ["A"]}]`: "",
		`"in_flight": 1000000001`:                  "in_flight 1000000001: want 1 to 1000000000",
		`"in_flight": 1000000000`:                  "",
	} {
		err := validate(t, "", `{"handler": "rate_limit", "zones": [{"name": "z", "rules": [{"limit": 1, "window": "1s"}], `+option+`}]}`)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", option, err, want)
		}
	}
	for address, ok := range map[string]bool{
		"": false, " ": false, "a:b:c": false, "h:0": false, ":6379": false, "a b:1": false,
		"redis:/h:6379": false, "h:6379/2": false, "u:canary@ss#w@h": false, "6379": false,
		"localhost": true, "h:1": true, "[::1]:6379": true, "10.0.0.1": true,
	} {
		err := validate(t, fmt.Sprintf(`"stores": [{"addresses": [%q]}]`, address), `{"handler": "rate_limit", "zones": [{"name": "z", "rules": [{"limit": 1, "window": "1s"}]}]}`)
		if (err == nil) != ok || err != nil && (!strings.Contains(err.Error(), "want host:port, a redis:// or rediss:// URL, or unix//path") || strings.Contains(err.Error(), "canary")) {
			t.Errorf("address %q: %v, valid %v", address, err, ok)
		}
	}
	for _, address := range []string{"redis:tcp://10.0.0.1:6379", "redis:///2", "redis://u:canary@ss#w@h", "redis://u:canary/w@h"} {
		err := validate(t, fmt.Sprintf(`"stores": [{"addresses": [%q]}]`, address), `{"handler": "rate_limit", "zones": [{"name": "z", "rules": [{"limit": 1, "window": "1s"}]}]}`)
		if err == nil || !strings.Contains(err.Error(), "address 1: want a URL such as") || strings.Contains(err.Error(), "canary") {
			t.Errorf("address %q: %v", address, err)
		}
	}
}
