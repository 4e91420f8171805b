// Package page provides the live page as a single HTML file.
//
// Nothing here is on the way of a request.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
)

// uplot/ contains uPlot 1.6.32, unmodified, with its licence.
var (
	//go:embed page.html
	html string
	//go:embed page.css
	css string
	//go:embed js/*.js
	scripts embed.FS
	//go:embed uplot/uPlot.iife.min.js
	plot string
	//go:embed uplot/uPlot.min.css
	plotCSS string
)

// File is the page, ready to be sent.
type File struct {
	HTML []byte // the page with its styles and scripts

	// Policy is the Content-Security-Policy to send it with. It allows only the
	// styles and scripts in the file.
	Policy string
}

// Get returns the page.
var Get = sync.OnceValue(func() File {
	style, code := plotCSS+"\n"+css, plot+"\n"+script()
	text := strings.NewReplacer("/*style*/", style, "/*script*/", code).Replace(html)
	return File{
		HTML: []byte(text),
		Policy: fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; connect-src 'self'; img-src data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", source(code), source(style)),
	}
})

// parts are the files of the script, in order: what a file runs at once is in those before
// it.
var parts = []string{"format", "model", "live", "link", "graph", "overview", "table", "fleet", "places", "zone", "keys", "explain", "rules", "changes", "exceptions", "main"}

// script returns the script, in one function of its own.
func script() string {
	var b strings.Builder
	b.WriteString("\"use strict\";\n(() => {\n")
	for _, name := range parts {
		text, err := scripts.ReadFile("js/" + name + ".js")
		if err != nil {
			panic(err) // it is embedded
		}
		b.Write(text)
	}
	b.WriteString("})();\n")
	return b.String()
}

// source returns the CSP source of an inline block: its hash.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
