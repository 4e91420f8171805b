package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// The sources of rules by name. Empty: there is none.
const (
	fromRedis = "redis"
	fromHTTP  = "http"
	fromFile  = "file"
)

// documentAddress is the address of the server of the source http, which is private.
const documentAddress = "10.1.2.3:8080"

// interval is how often the sources are read.
const interval = 5 * time.Second

// sourceJSON returns the JSON of the source of rules.
func (s *setup) sourceJSON() map[string]any {
	source := map[string]any{"source": s.source, "interval": int64(interval)}
	switch s.source {
	case fromRedis:
		source["key"] = "rules"
	case fromHTTP:
		source["url"] = "http://" + documentAddress + "/rules.json"
	case fromFile:
		source["path"] = s.file
	}
	return source
}

// documents is the HTTP server that has the document. In the beginning there is none.
type documents struct {
	mu   sync.Mutex
	text []byte
	tag  string // ETag
}

// set replaces the document.
func (d *documents) set(text []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text, d.tag = text, strconv.Quote(strconv.FormatUint(hash(string(text)), 16))
}

// Running implements server.
func (*documents) Running() bool { return true }

// Serve implements server: it answers the requests of one connection.
func (d *documents) Serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := c.Write(d.answer(r)); err != nil {
			return
		}
	}
}

// answer returns the answer to a request.
func (d *documents) answer(r *http.Request) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(d.text) == 0:
		return []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
	case r.Header.Get("If-None-Match") == d.tag:
		return []byte("HTTP/1.1 304 Not Modified\r\nETag: " + d.tag + "\r\n\r\n")
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: " + d.tag + "\r\nContent-Length: " + strconv.Itoa(len(d.text)) + "\r\n\r\n"
	return append([]byte(head), d.text...)
}

// document gives the source of rules another document, in which a bounded rule has another
// limit or algorithm.
func (w *world) document(r *rand.Rand) {
	source := w.plan.setup.source
	if source == "" {
		return
	}
	i := slices.IndexFunc(w.plan.setup.sites, func(one site) bool { return one.Kind == bounded })
	one := w.plan.setup.sites[i]
	one.Rules = slices.Clone(one.Rules)
	for k := range one.Rules {
		if one.Rules[k].Limit = max(3, one.Rules[k].Limit*(50+r.Int64N(100))/100); r.IntN(2) == 0 {
			one.Rules[k] = otherKind(&one.Rules[k], r)
		}
	}
	w.coverage.event("document")
	w.oracle.changed(i, one.Rules, byDocument)
	text := encode(map[string]any{"zones": map[string]any{one.Name: map[string]any{"rules": rulesJSON(one.Rules)}}})
	var err error
	switch source {
	case fromRedis:
		err = w.publish(text)
	case fromHTTP:
		w.documents.set(text)
	case fromFile:
		err = replaceFile(w.plan.setup.file, text)
	}
	w.event("document %s: %v", text, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.lastSite = one.Rules, one.Name
	w.unsure = w.unsure || err != nil // Redis may have executed it, even later than what follows
}

// otherKind returns a rule with the same limit and window and one of three algorithms.
func otherKind(one *rule, r *rand.Rand) rule {
	return rule{Algorithm: []string{"gcra", "sliding_window", "fixed_window"}[r.IntN(3)], Limit: one.Limit, Window: one.Window}
}

// publish writes a document to Redis.
func (w *world) publish(text []byte) error {
	client := w.redis.client(w.network)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := client.Set(ctx, "rules", string(text), 0).Err(); err != nil {
		return err
	}
	return client.Publish(ctx, "rules", "").Err()
}

// replaceFile replaces a file at once. Its time is that of the bubble.
func replaceFile(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(next, time.Now(), time.Now()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// documents checks that all instances have the rules of the last document: at a URL or in a
// file it is never lost, in Redis unless that has forgotten something, or has not answered when
// the document was written.
func (o *oracle) documents() {
	w := o.w
	w.mu.Lock()
	last, site, unsure := w.last, w.lastSite, w.unsure
	w.mu.Unlock()
	o.mu.Lock()
	lost := len(o.touches(0, w.now(), isLoss)) > 0
	o.mu.Unlock()
	if last == nil || unsure || lost && w.plan.setup.source == fromRedis {
		return
	}
	for _, in := range w.instances {
		status, text := in.ask(http.MethodGet, "/rate_limit/zones")
		if status == 0 {
			continue
		}
		var z cli.Zones
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			o.violate("the admin API answers", fmt.Sprintf("%d %s", status, text))
			continue
		}
		i := slices.IndexFunc(z.Zones, func(z cli.Zone) bool { return z.Name == site })
		o.count("documents")
		for k := range last {
			if i < 0 || z.Zones[i].Rules[k].Limit != last[k].Limit || z.Zones[i].Rules[k].Algorithm != last[k].Algorithm {
				o.violate("all instances have the last document", fmt.Sprintf("%s %s: want %+v, has %+v", in.name, site, last, z.Zones))
				return
			}
		}
	}
}

// count counts a check of a promise.
func (o *oracle) count(promise string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked[promise]++
}
