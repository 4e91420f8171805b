package redis

import (
	"strings"
	"testing"
)

// TestServerFaults reports versions that are too old, and policies of eviction.
func TestServerFaults(t *testing.T) {
	for version, want := range map[string]string{
		"5.0.14": "too old", "6.0.20": "too old", "6.2.0": "", "7.0.15": "", "8.10.1": "", "9.0.0-rc1": "", "10.0.0": "", "": "", "nonsense": "",
	} {
		f := serverInfo{version: version, policy: "noeviction"}.faults()
		if want == "" && len(f) > 0 || want != "" && (len(f) != 1 || !strings.Contains(f[0][0], want)) {
			t.Errorf("%s: %q, want %q", version, f, want)
		}
	}
	if f := (serverInfo{policy: "allkeys-lru"}).faults(); len(f) != 1 || !strings.Contains(f[0][0], "allkeys-lru") {
		t.Errorf("policy allkeys-lru: %q, want one fault", f)
	}
}

// TestReadInfo parses INFO of Redis and Valkey.
func TestReadInfo(t *testing.T) {
	for text, want := range map[string]serverInfo{
		"# Server\r\nredis_version:7.4.6\r\n# Memory\r\nmaxmemory_policy:allkeys-lru\r\n":                      {"7.4.6", "allkeys-lru"},
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.4\r\nmaxmemory_policy:noeviction\r\n": {"7.2.4", "noeviction"},
	} {
		if got := readInfo(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
