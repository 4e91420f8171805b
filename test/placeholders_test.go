package test

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

const (
	neverFilled = "no module in this build provides a placeholder of the zone: it is always empty"
	noShorthand = "unknown shorthand in the zone: it is always empty unless map defines it"
	asSpelled   = "a placeholder of the key is not normalized: each spelling is counted on its own"
)

// TestWarningsOfPlaceholders checks that a key that can never be filled is warned of, by
// name and with what was probably meant, and that no other is.
func TestWarningsOfPlaceholders(t *testing.T) {
	for name, want := range map[string]struct{ msg, advice string }{
		"{querry.id}":                 {neverFilled, "write {query.id}"},
		"{cookies.sid}":               {neverFilled, "write {cookie.sid}"},
		"{haeder.X-Id}":               {neverFilled, "write {header.X-Id}"},
		"{headers.X-Id}":              {neverFilled, "write {header.X-Id}"},
		"{http.request.remote.ip}":    {neverFilled, "write {client_ip}"},
		"{http.request.headers.X-Id}": {neverFilled, "write {header.X-Id}"},
		"{http.request.methd}":        {neverFilled, "write {http.request.method}"},
		"{http.request.hots}":         {neverFilled, "write {http.request.host}"},
		"{jwt.sub}":                   {neverFilled, "write {http.auth.user.sub}"},
		"{path.id}":                   {neverFilled, "write {path.0}"},
		"{path.*}":                    {neverFilled, "write {path.0}"},
		"{http.nope.x}":               {neverFilled, "write a shorthand such as"},
		"{nope.x}":                    {neverFilled, "write a shorthand such as"},
		"{http.request.tls.nope}":     {neverFilled, "write a shorthand such as"},
		"{clientip}":                  {noShorthand, "write {client_ip}"},
		"{ip}":                        {noShorthand, "write {client_ip}"},
		"{tier}":                      {noShorthand, "write a shorthand such as"},
		"{uri}":                       {asSpelled, "use {path}"},
		"{%path}":                     {asSpelled, "use {path}"},
		"{orig_uri}":                  {asSpelled, "use {path}"},
		"{query}":                     {asSpelled, "use {query.<name>}"},
		"{?query}":                    {asSpelled, "use {query.<name>}"},
		"x{http.request.uri}":         {asSpelled, "use {path}"},
		"{hostport}":                  {asSpelled, "use {host}"},
		"{client_ip}":                 {},
		"{header.X-Id}":               {},
		"{header.X.Y}":                {}, // but Caddy drops it
		"{query.user[id]}":            {},
		"{path.1}":                    {},
		"{path}":                      {},
		"{host}":                      {},
		"{labels.0}":                  {},
		"{re.name.1}":                 {},
		"{vars.x}":                    {},
		"{tls_client_fingerprint}":    {},
		"{http.request.tls.client.san.dns_names.0}": {},
		"{http.request.remote.host/24,64}":          {},
		"{http.auth.user.id}":                       {},
		"{http.matchers.file.relative}":             {},
		"{env.HOSTNAME}":                            {},
		"{file./etc/hostname}":                      {},
		"{system.hostname}":                         {},
		"{http.request.body.id}":                    {},
		"constant":                                  {},
		"{test_claims.sub}":                         {}, // of otherModule
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{site: "rate_limit {\nzone z {\nkey \"" + name + "\"\nkey_missing share\nrule 10/1h\n}\n}\nrespond ok"})
			s.want(req{}, 200)
			for _, msg := range []string{neverFilled, noShorthand, asSpelled} {
				lines := s.log.lines(t, msg)
				if msg != want.msg {
					if len(lines) > 0 {
						t.Errorf("warning %v, want none", lines[0])
					}
					continue
				}
				if len(lines) != 1 || lines[0]["level"] != "warn" || lines[0]["zone"] != "z" || !strings.HasPrefix(lines[0][adviceField].(string), want.advice) {
					t.Errorf("%d lines %v, want the advice %q", len(lines), lines, want.advice)
				}
				if got := lines[0]["placeholder"].(string); !strings.HasSuffix(name, got) && !strings.HasPrefix(got, "{http.request.") {
					t.Errorf("placeholder %q", got)
				}
			}
		})
	}
}

// otherModule is a module of another plugin.
type otherModule struct{}

func (otherModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_claims", New: func() caddy.Module { return new(otherModule) }}
}

func init() { caddy.RegisterModule(otherModule{}) }

// TestWarningsOfCost checks the same for cost and settle, and for reserve.
func TestWarningsOfCost(t *testing.T) {
	for _, options := range []string{"cost {querry.n}\nsettle {http.response.header.X-Tokens}", "tokens {\nreserve {querry.n}\n}"} {
		s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 10/1h gcra\n" + options + "\n}\n}\nrespond ok"})
		if lines := s.log.lines(t, neverFilled); len(lines) != 1 || lines[0]["placeholder"] != "{querry.n}" {
			t.Errorf("%s: lines %v", options, lines)
		}
	}
}

// TestKeyOfAMapVariable checks that a variable of map is a key.
func TestKeyOfAMapVariable(t *testing.T) {
	s := serve(t, setup{site: `
		map {header.X-Plan} {tier} {
			gold high
			default low
		}
		rate_limit {
			zone z {
				key {tier}
				rule 1/1h
			}
		}
		respond ok`})
	for _, plan := range []string{"gold", "free"} {
		s.want(req{header: map[string]string{"X-Plan": plan}}, 200, 429)
	}
	s.want(req{header: map[string]string{"X-Plan": "none"}}, 429)
}

// TestCompactKeysAreChecked checks that the compact form rejects the keys that the plugin
// it comes from rejects, and only those.
func TestCompactKeysAreChecked(t *testing.T) {
	for key, want := range map[string]string{
		"{querry.id}": "{querry.id}: write {query.id}", "{unknown.id}": "nothing in this build provides {unknown.id}", "{tier}": "nothing in this build provides {tier}",
		"{jwt.sub}": "write {http.auth.user.sub}", "{remote.ipp}": "want {remote.host}",
		"{path.id}": "", "{query.id}": "", "{header.X}": "", "{cookie.x}": "", "{body.x}": "", "{remote.host}": "", "{remote.port}": "", "{remote.ip}": "",
		"{remote.host_prefix.24}": "", "{remote.ip_prefix.64}": "", "{client_ip}": "",
		"{http.request.remote.ip}": "write {client_ip}", "{http.request.client_ip}": "write {client_ip}",
	} {
		for _, rest := range []string{"", " 100", " 100 503"} {
			err := newSite(t).load(setup{site: "rate_limit " + key + " 2r/m" + rest})
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Caddyfile:")) {
				t.Errorf("%s%s: %v, want %q", key, rest, err, want)
			}
		}
		err := validate(t, "", `{"handler": "rate_limit", "key": "`+key+`", "rate": "2r/m"}`)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("JSON %s: %v, want %q", key, err, want)
		}
	}
	for _, line := range []string{"{tier} 2/m", "{querry.id} 2/m", "{tier} 2r/m gcra"} {
		if err := newSite(t).load(setup{site: "rate_limit " + line}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
