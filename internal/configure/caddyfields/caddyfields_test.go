package caddyfields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	maphandler "github.com/caddyserver/caddy/v2/modules/caddyhttp/map"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

// TestConfiguration checks what is read of a configuration that is loaded: a Caddy that moves it fails here.
func TestConfiguration(t *testing.T) {
	const app = `{"servers":{
		"none":{"listen":["127.0.0.1:0"],"automatic_https":{"disable":true}},
		"some":{"listen":["127.0.0.1:1"],"automatic_https":{"disable":true},"trusted_proxies":{"source":"static","ranges":["10.0.0.0/8","::1"]}}}}`
	c := &caddy.Config{StorageRaw: json.RawMessage(fmt.Sprintf(`{"module":"file_system","root":%q}`, t.TempDir()))}
	root, err := caddy.ProvisionContext(c)
	if err != nil {
		t.Fatal(err)
	}
	c.AppsRaw = caddy.ModuleMap{"http": json.RawMessage(app)}
	ctx, cancel := caddy.NewContext(root)
	defer cancel()
	if text, ok := App(ctx, "http"); !ok || string(text) != app {
		t.Errorf("the app http is %q, %v", text, ok)
	}
	if text, ok := App(ctx, "tls"); ok {
		t.Errorf("the app tls is %q", text)
	}
	h, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	servers := h.(*caddyhttp.App).Servers
	if has, ranges := TrustedProxies(servers["none"]); has || ranges != nil {
		t.Errorf("a server without trusted proxies has %q", ranges)
	}
	if has, ranges := TrustedProxies(servers["some"]); !has || !slices.Equal(ranges, []string{"10.0.0.0/8", "::1"}) {
		t.Errorf("the trusted proxies are %v, %q", has, ranges)
	}
}

// TestSite checks the site of a directive in a Caddyfile.
func TestSite(t *testing.T) {
	var sites []Site
	httpcaddyfile.RegisterHandlerDirective("site_of", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		sites = append(sites, SiteOf(h))
		h.Next()
		return &caddyhttp.VarsMiddleware{}, nil
	})
	const text = "http://a.example, http://b.example {\n\troute {\n\t\tsite_of\n\t}\n}\n"
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	if _, _, err := adapter.Adapt([]byte(text), map[string]any{"filename": "Caddyfile"}); err != nil {
		t.Fatal(err)
	}
	if len(sites) != 1 || sites[0].Text != "http://a.example" || sites[0].Line != 1 || !strings.HasSuffix(sites[0].File, "Caddyfile") {
		t.Errorf("the sites are %+v", sites)
	}
}

// TestOptions checks the options of Caddy's handlers.
func TestOptions(t *testing.T) {
	list := []caddyhttp.ResponseHandler{{}}
	for _, h := range []caddyhttp.MiddlewareHandler{&reverseproxy.Handler{HandleResponse: list}, intercept.Intercept{HandleResponse: list}, &intercept.Intercept{HandleResponse: list}} {
		if got := Responses(h); len(got) != 1 || &got[0] != &list[0] {
			t.Errorf("%T handles the responses %v", h, got)
		}
	}
	source, destinations := Map(maphandler.Handler{Source: "{a}", Destinations: []string{"{b}"}})
	if source != "{a}" || !slices.Equal(destinations, []string{"{b}"}) {
		t.Errorf("map has %q and %q", source, destinations)
	}
	if !PassesOn(&fileserver.FileServer{PassThru: true}) || PassesOn(new(fileserver.FileServer)) {
		t.Error("file_server's pass_thru is unknown")
	}
	other := caddyhttp.VarsMiddleware{"Source": "a"}
	if source, _ := Map(other); source != "" || Responses(other) != nil || PassesOn(other) {
		t.Error("vars has options of other handlers")
	}
}
