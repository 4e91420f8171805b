// Build builds the Caddy of the tests, with xcaddy, into the file named as its argument. The
// tests use it if DIANA_CADDY names it.
package main

import (
	"log"
	"os"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

func main() {
	if err := harness.XCaddy(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
