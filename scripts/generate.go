//go:build ignore

// Generate writes decide.lua.
package main

import (
	"log"
	"os"

	"github.com/dianalimiter/diana/scripts/assemble"
)

func main() {
	text, err := assemble.Script(os.DirFS(".."))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("decide.lua", []byte(text), 0o644); err != nil { //nolint:gosec // as other sources
		log.Fatal(err)
	}
}
