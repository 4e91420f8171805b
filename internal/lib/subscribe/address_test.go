package subscribe

import "testing"

// TestAddresses reads addresses as they are meant, and those that name another host than is meant not at all.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"redis": "redis:6379", "h:1": "h:1", "10.0.0.1": "10.0.0.1:6379", "[::1]:7": "[::1]:7", "::1": "[::1]:6379", "[::1]": "[::1]:6379",
		"my_redis.svc-1.cluster.local.": "my_redis.svc-1.cluster.local.:6379", "bücher.example:6380": "bücher.example:6380", "redis:": "redis:6379",
		"redis:tcp://10.0.0.1:6379": "", "redis:/h:6379": "", "h:6379/2": "", "tcp/h:1": "", "redis//h": "", "/h": "",
		"": "", " ": "", ":6379": "", "a:b:c": "", "h:0": "", "h:70000": "", "h:1-2": "", "h:-1": "", "6379": "", "127.1": "", "1.2.3.4.5": "",
		"u:p@ss#w@h:1": "", "p@ss#w@h:1": "", "u@h": "", "h,g": "", "h?x": "", "h#x": "", "{env.HOST}": "", "[h": "", "h]": "", "a..b": "", "a b": "",
	} {
		if got, ok := HostPort(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, ok, want)
		}
	}
	for text, want := range map[string]string{
		"redis://h": "h:6379", "rediss://u:p@h:1/2": "h:1", "redis://[::1]/3": "[::1]:6379", "unix:///run/redis.sock": "/run/redis.sock", "redis://h/2?dial_timeout=1s": "h:6379",
		"redis://u:canary@ss@h": "h:6379", "redis://u:canary%23w@h": "h:6379",
		"redis:///2": "", "redis://": "", "redis://:6379": "", "redis://:canary@:6379": "", "redis:tcp://10.0.0.1:6379": "", "redis://tcp://h": "",
		"redis://u:canary@ss#w@h": "", "redis://u:canary#w@h": "", "redis://u:canary/w@h": "", "redis://u:1/canary@h": "", "redis://u:canary?w@h": "", "redis://u:1?canary@h": "",
		"redis://u:%zcanary@h": "", "redis://h,g": "", "redis://h:70000": "", "redis://h:0": "", "redis://1234": "", "unix://h/run": "", "unix://": "", "http://h": "", "://canary": "",
	} {
		if o, ok := ParseURL(text); ok != (want != "") || ok && o.Addr != want {
			t.Errorf("%q: %+v, %v, want %q", text, o, ok, want)
		}
	}
}
