package test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pages writes pages of templates to a folder.
func pages(t *testing.T, texts map[string]string) (folder string) {
	folder = t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestIncludes checks that the virtual requests of templates are part of the request that was decided: they are not
// counted, and not denied.
func TestIncludes(t *testing.T) {
	folder := pages(t, map[string]string{
		"index.html": `page {{httpInclude "/part.html"}} {{httpInclude "/part.html"}} {{httpInclude "/nested.html"}}`,
		"part.html":  "part", "nested.html": `{{httpInclude "/part.html"}}`, "free.html": `{{httpInclude "/part.html"}}`, "oops.html": `sorry {{httpInclude "/part.html"}}`,
	})
	files := "\nroot * " + folder + "\ntemplates\nfile_server\n"
	for name, c := range map[string]struct{ zones, errors string }{
		"limit":           {"rule 2/1h", ""},
		"in_flight":       {"in_flight 1\nrule 2/1h", ""},
		"all":             {"key all\nrule 9/1h", ""},
		"address":         {"rule 2/1h\noverride 127.0.0.1 {\nrule 0/1h\n}", ""},
		"a header's key":  {"key {header.X-Key}\nkey_missing deny\nprevent_duplicates 1h\nrule 2/1h", ""},
		"with error page": {"rule 2/1h", "handle_errors {\nrewrite * /oops.html\nroot * " + folder + "\ntemplates\nfile_server\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			zone := newName("z")
			s := serve(t, setup{site: "rate_limit {\nzone " + zone + " {\n" + c.zones + "\n}\n}" + files + c.errors})
			for client := range 3 {
				q := req{ip: fmt.Sprintf("10.7.0.%d", client), header: map[string]string{"X-Key": fmt.Sprint(client)}}
				for range 2 {
					if a := s.want(q, 200); a.body != "page part part part" {
						t.Errorf("body %q", a.body)
					}
				}
				if a := s.send(q); name != "all" && a.status != 429 || c.errors != "" && a.body != "sorry part" {
					t.Errorf("status %d, body %q", a.status, a.body)
				}
			}
			if name == "all" {
				s.want(req{}, 429)
			}
		})
	}
}

// TestIncludesOfUndecidedRequests checks that virtual requests of requests that no zone decided are decided, and that
// no client can pass its request off as a virtual one.
func TestIncludesOfUndecidedRequests(t *testing.T) {
	folder := pages(t, map[string]string{"index.html": `{{httpInclude "/part.html"}}`, "part.html": "part"})
	files := "\nroot * " + folder + "\ntemplates\nfile_server\n"
	s := serve(t, setup{site: "rate_limit {\nzone " + newName("z") + " {\nmatch path /part.html\nrule 2/1h\n}\n}" + files})
	s.want(req{}, 200, 200, 500)
	s = serve(t, setup{site: "route {\nrate_limit {\nzone " + newName("z") + " {\nrule 100/1h\n}\n}\nrate_limit {\nzone " + newName("z") + " {\nrule 2/1h\n}\n}" + files + "}"})
	forged := map[string]string{"Caddy-Templates-Include": "1", "Rate-Limit-Decided": ""}
	s.want(req{path: "/part.html", header: forged}, 200, 200, 429)
	conn, err := net.Dial("tcp", s.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /part.html HTTP/1.1\r\nHost: x\r\nRate-Limit-Decided:\r\nCaddy-Templates-Include: 1\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 12)
	if _, err := conn.Read(b); err != nil || string(b) != "HTTP/1.1 429" {
		t.Errorf("%s, %v", b, err)
	}
}

// TestIncludesWherever checks that virtual requests are part of their request, wherever in the server the page is made
// and the zones are.
func TestIncludesWherever(t *testing.T) {
	folder := pages(t, map[string]string{"index.html": `page {{httpInclude "/part.html"}}`, "part.html": "part"})
	files := "\nroot * " + folder + "\ntemplates\nfile_server\n"
	const limit = "rate_limit {\nzone ZONE {\nrule 2/1h\n}\n}\n"
	up, failing := serveText(t, 200), serveText(t, 503)
	for place, c := range map[string]setup{
		"handle_response":          {site: "@page path /\nroute @page {\n" + limit + "reverse_proxy " + up + " {\nhandle_response {\nroute {" + files + "}\n}\n}\n}\nroute {\n" + limit + files + "}"},
		"zones in handle_response": {site: "@page path /\nreverse_proxy @page " + up + " {\nhandle_response {\nroute {\n" + limit + files + "}\n}\n}\nroute {\n" + limit + files + "}"},
		"a failed response":        {site: limit + "@page path /\nroute @page {\nreverse_proxy " + failing + " {\n@bad status 5xx\nhandle_response @bad {\nroute {" + files + "}\n}\n}\n}\nroute {" + files + "}"},
		"intercept":                {site: limit + "@page path /\nroute @page {\nintercept {\nhandle_response {\nroute {" + files + "}\n}\n}\nrespond up 200\n}\nroute {" + files + "}"},
		"named route":              {site: "route {\ninvoke page\n}", more: "&(page) {\nroute {\n" + limit + files + "}\n}\n"},
		"zones in a named route":   {site: "route {\ninvoke limits\n" + files + "}", more: "&(limits) {\n" + limit + "}\n"},
		"an error route":           {site: limit + "@page path /\nerror @page 404\nroute {" + files + "}\nhandle_errors {\nroute {" + files + "}\n}"},
		"rewritten":                {site: "route {\n" + limit + "uri strip_prefix /x\n" + files + "}"},
		"dynamic respond":          {site: "route {\n" + limit + "templates {\nmime text/plain\n}\n@page path /\nrespond @page `page {{httpInclude \"/part.html\"}}`\nrespond part\n}"},
	} {
		t.Run(place, func(t *testing.T) {
			name := newName("z")
			c.site, c.more = strings.ReplaceAll(c.site, "ZONE", name), strings.ReplaceAll(c.more, "ZONE", name)
			s := serve(t, c)
			for range 2 {
				if a := s.send(req{}); a.body != "page part" {
					t.Errorf("status %d, body %q", a.status, a.body)
				}
			}
			s.want(req{}, 429)
			if used := s.charged(name); used != 2 {
				t.Errorf("%d charged, want 2", used)
			}
		})
	}
}

// serveText answers every request with a status.
func serveText(t *testing.T, status int) string {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprint(w, "up")
	}))
	t.Cleanup(up.Close)
	return up.Listener.Addr().String()
}
