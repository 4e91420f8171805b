package httpapp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/templates"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

func init() {
	caddy.RegisterModule(new(looks))
	caddy.RegisterModule(new(foreign))
}

// looks is a matcher that asks whether something may read the placeholders.
type looks struct{}

var found *bool

func (*looks) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.matchers.looks", New: func() caddy.Module { return new(looks) }}
}

func (*looks) Provision(ctx caddy.Context) error {
	found = new(Of(ctx).Reads)
	return nil
}

func (*looks) MatchWithError(*http.Request) (bool, error) { return true, nil }

// foreign is a handler that does not come with Caddy.
type foreign struct{}

func (*foreign) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.foreign", New: func() caddy.Module { return new(foreign) }}
}

func (*foreign) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}

// TestRead provisions configurations with and without something that may read the placeholders.
func TestRead(t *testing.T) {
	const site = `{"match":[{"looks":{}}],"handle":[%s]}`
	server := func(routes, errors string) string {
		return fmt.Sprintf(`{"servers":{"s":{"listen":["127.0.0.1:0"],"automatic_https":{"disable":true},"routes":[%s],"errors":{"routes":[%s]}}}}`, routes, errors)
	}
	route := func(handlers string) string { return fmt.Sprintf(site, handlers) }
	ok := `{"handler":"static_response","body":"ok"}`
	for app, want := range map[string]bool{
		server(route(ok), ""): false,
		server(route(`{"handler":"vars","a":"{http.request.uri}"},{"handler":"file_server","browse":{}}`), ""):               false,
		server(route(ok), `{"handle":[{"handler":"static_response","body":"in {http.rate_limit.exceeded.retry_after} s"}]}`): true,
		server(route(ok)+`,{"match":[{"vars":{"{http.rate_limit.z.remaining}":["0"]}}]}`, ""):                                true,
		server(route(ok)+`,{"match":[{"expression":"ph(req, 'http\u002erate_limit.z.remaining') == 0"}]}`, ""):               true,
		server(route(ok)+`,{"match":[{"expression":"ph(req, 'http.' + 'rate_limit.z.remaining') == 0"}]}`, ""):               true,
		server(route(`{"handler":"file_server","browse":{"Template_File":"list.html"}}`), ""):                                true,
		server(route(`{"handler":"subroute","routes":[{"handle":[{"handler":"templates"}]}]}`), ""):                          true,
		server(route(`{"handler":"file_server","browse":{"template_file":"list.html"}}`), ""):                                true,
		server(route(ok)+`,{"handle":[{"handler":"foreign"}]}`, ""):                                                          true,
	} {
		c := &caddy.Config{StorageRaw: json.RawMessage(fmt.Sprintf(`{"module":"file_system","root":%q}`, t.TempDir()))}
		root, err := caddy.ProvisionContext(c)
		if err != nil {
			t.Fatal(err)
		}
		c.AppsRaw = caddy.ModuleMap{"http": json.RawMessage(app)}
		ctx, cancel := caddy.NewContext(root)
		found = nil
		if _, err := ctx.App("http"); err != nil {
			t.Fatalf("%s: %v", app, err)
		}
		cancel()
		if found == nil || *found != want {
			t.Errorf("%s: %v, want %v", app, found, want)
		}
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	if !Of(ctx).Reads {
		t.Error("without the http app nobody reads")
	}
}
