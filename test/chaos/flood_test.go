package chaos

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/internal/testkit/benchtest"
	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const floodKeys = 1_000_000

// flood sends ten times as many active keys as the zone's max_keys, from one
// attacker's /48 and then from a hundred /16.
func flood(t *testing.T, out *result) {
	stated := statedMemory(t)
	before := usage.HeapAlloc()
	h := benchtest.Handler(t, "rate_limit", fmt.Sprintf(
		`{"headers": "off", "zones": [{"name": "flood", "key": ["{http.request.header.%s}"], "ipv6_prefix": 128, "max_keys": %d, "rules": [{"limit": 5, "window": "24h", "algorithm": {"name": "gcra"}}]}]}`,
		benchtest.KeyHeader, floodKeys), map[string]string{"rate_limit": "{}"})
	e := benchtest.NewExchange(t)
	passes := func(key string) bool { return e.Do(h, key) == nil }
	victim, attacker := "192.0.2.7", "2001:db8:1:1::1"
	for _, key := range []string{victim, attacker} {
		for range 5 {
			if !passes(key) {
				t.Fatalf("the first request of %s was denied", key)
			}
		}
	}
	begun := time.Now()
	a := netip.MustParseAddr("2001:db8:1::").As16()
	for i := range 10 * floodKeys {
		binary.BigEndian.PutUint64(a[8:], uint64(i))
		passes(netip.AddrFrom16(a).String())
	}
	for i := range uint32(floodKeys) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 100<<24|i%100<<16|i/100)
		passes(netip.AddrFrom4(b).String())
	}
	took := time.Since(begun)
	if used := usage.HeapAlloc() - before; used > stated+stated/10 {
		t.Errorf("%d bytes used, %d stated", used, stated)
	} else {
		out.report("%d million clients in %.0f s, %.0f MB used of %.0f MB stated", 11, took.Seconds(), float64(used)/1e6, float64(stated)/1e6)
	}
	if passes(victim) {
		t.Error("a client that had used up its limit passes after the flood")
	}
	if passes(attacker) {
		t.Error("the attacker's own limit was reset")
	}
	honest := 0
	for i := range 100 {
		if passes(fmt.Sprintf("198.%d.0.9", i)) {
			honest++
		}
	}
	out.report("denied clients stay denied, %d of 100 new clients of other networks pass", honest)
	if honest < 100 {
		t.Errorf("%d of 100 new clients outside the attacker's network pass", honest)
	}
}

// statedMemory returns the memory bound that the zone logs when it is loaded.
func statedMemory(t *testing.T) uint64 {
	t.Helper()
	c := harness.StartCaddy(t, harness.Config{Site: fmt.Sprintf(
		"\trate_limit {\n\t\tzone flood {\n\t\t\tkey {header.X-Key}\n\t\t\tmax_keys %d\n\t\t\trule 5/24h gcra\n\t\t}\n\t}\n\trespond ok", floodKeys)})
	var line struct {
		MaxBytes uint64 `json:"max_bytes"`
	}
	text := c.WaitLog(t, 10*time.Second, `"counts in this process"`)
	if err := json.Unmarshal([]byte(strings.TrimSpace(text)), &line); err != nil || line.MaxBytes == 0 {
		t.Fatalf("line %s: %v", text, err)
	}
	return line.MaxBytes
}
