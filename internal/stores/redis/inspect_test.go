package redis

import (
	"strings"
	"testing"
)

// TestServerFaults reports versions with known vulnerabilities. Valkey is not taken
// for the Redis version with which it is compatible.
func TestServerFaults(t *testing.T) {
	for version, to := range map[string]string{
		"redis 5.0.14": "too old", "redis 6.0.20": "too old", "redis 6.2.19": "6.2.20", "redis 6.2.20": "",
		"redis 7.0.15": "7.2.11", "redis 7.2.4": "7.2.11", "redis 7.2.10": "7.2.11", "redis 7.2.11": "", "redis 7.4.5": "7.4.6", "redis 7.4.6": "",
		"redis 8.0.3": "8.0.4", "redis 8.0.4": "", "redis 8.2.1": "8.2.2", "redis 8.2.2": "", "redis 8.4.0": "", "redis 8.10.1": "", "redis 9.0.0-rc1": "",
		"valkey 7.2.4": "7.2.11", "valkey 7.2.11": "", "valkey 8.0.5": "8.0.6", "valkey 8.1.3": "8.1.4", "valkey 8.1.4": "", "valkey 9.0.0": "",
		"redis ": "", "redis nonsense": "", "redis 7.2": "",
	} {
		name, v, _ := strings.Cut(version, " ")
		var got []string
		for _, f := range (server{name: name, version: v, policy: "noeviction"}).faults() {
			got = append(got, f[0]+": "+f[1])
		}
		if to == "" && len(got) > 0 || to != "" && (len(got) != 1 || !strings.Contains(got[0], to)) {
			t.Errorf("%s: %q, want %q", version, got, to)
		}
	}
	if f := (server{name: "redis", version: "7.2.4"}).faults(); f != nil {
		t.Errorf("a version that any Valkey may report: %q, want no faults", f)
	}
	if f := (server{name: "redis", policy: "allkeys-lru"}).faults(); len(f) != 1 || !strings.Contains(f[0][0], "allkeys-lru") {
		t.Errorf("policy allkeys-lru: %q, want one fault", f)
	}
}

// TestReadInfo parses INFO of Redis and Valkey.
func TestReadInfo(t *testing.T) {
	redis := readInfo("# Server\r\nredis_version:7.4.6\r\n# Memory\r\nmaxmemory_policy:allkeys-lru\r\n")
	if redis != (server{"redis", "7.4.6", "allkeys-lru"}) {
		t.Errorf("Redis %+v", redis)
	}
	valkey := readInfo("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.4\r\nmaxmemory_policy:noeviction\r\n")
	if valkey != (server{"valkey", "8.1.4", "noeviction"}) {
		t.Errorf("Valkey %+v", valkey)
	}
}
