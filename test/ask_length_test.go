package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAskUsageWithinBodyLimits checks that ask_usage makes no request too long for request_body.
func TestAskUsageWithinBodyLimits(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(400)
			return
		}
		w.Header().Set("X-Asked", fmt.Sprint(strings.Contains(string(b), "include_usage")))
	}))
	defer up.Close()
	const text = `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	const longer = len(`"stream_options":{"include_usage":true},`)
	for _, place := range []string{"route {\nLIMIT ZONE PROXY\n}", "route {\nZONE LIMIT PROXY\n}", "route {\nZONE handle {\nroute {\nLIMIT PROXY\n}\n}\n}"} {
		for size, want := range map[int]string{len(text) - 1: "413", len(text): "200 false", len(text) + longer - 1: "200 false", len(text) + longer: "200 true", 5000: "200 true"} {
			s := serve(t, setup{site: strings.NewReplacer(
				"LIMIT", fmt.Sprintf("request_body {\nmax_size %dB\n}\n", size), "PROXY", "reverse_proxy "+up.Listener.Addr().String(),
				"ZONE", "rate_limit {\nzone "+newName("z")+" {\ntokens openai {\nask_usage\nreserve 1\n}\nrule 100000/1m\n}\n}\n").Replace(place)})
			a := s.send(req{method: "POST", body: text, header: map[string]string{"Content-Type": "application/json"}})
			if got := strings.TrimSpace(fmt.Sprint(a.status, " ", a.get("X-Asked"))); got != want {
				t.Errorf("max_size %d of %d bytes, %q: %s, want %s", size, len(text), place, got, want)
			}
		}
	}
}
