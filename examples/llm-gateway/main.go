// Command llm-gateway runs Caddy with the Caddyfile beside it, and the upstream that it has at
// localhost:9000, or at the port UPSTREAM. Start it from the root of the repository.
package main

import (
	"cmp"
	"log"
	"net/http"
	"os"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/examples/llm-gateway/upstream"
)

func main() {
	srv := &http.Server{Addr: "localhost:" + cmp.Or(os.Getenv("UPSTREAM"), "9000"), Handler: upstream.Handler{}, ReadHeaderTimeout: time.Minute}
	go func() { log.Fatal(srv.ListenAndServe()) }()
	os.Args = []string{"caddy", "run", "--config", "examples/llm-gateway/Caddyfile"}
	caddycmd.Main()
}
