package xcaddytest

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// everyAlgorithm returns one rule of each algorithm that admits n requests.
func everyAlgorithm(n int) string {
	var rules strings.Builder
	for _, algorithm := range algorithms {
		fmt.Fprintf(&rules, "\t\t\trule %d/1h %s\n", n, algorithm)
	}
	return strings.Replace(rules.String(), "leaky_bucket", "leaky_bucket nodelay", 1)
}

// TestOneScriptCallAndNothingChargedOnDenial checks that a request is one call of
// one script, however many rules and zones apply, and that a denied request changes
// nothing in Redis.
func TestOneScriptCallAndNothingChargedOnDenial(t *testing.T) {
	sites := map[string]string{
		"all algorithms": "\trate_limit {\n\t\tzone mixed {\n\t\t\tkey one\n" + everyAlgorithm(20) + "\t\t}\n\t}",
		"two zones": "\trate_limit {\n\t\tzone account {\n\t\t\tkey {header.X-Account}\n" + everyAlgorithm(20) +
			"\t\t}\n\t\tzone address {\n\t\t\tkey {client_ip}\n\t\t\trule 1000/1h sliding_window\n\t\t\trule 1000/1h gcra\n\t\t}\n\t}",
		// Decided separately, the first zone would admit and charge the request.
		"second denies": "\trate_limit {\n\t\tzone wide {\n\t\t\tkey {client_ip}\n" + everyAlgorithm(1000) +
			"\t\t}\n\t\tzone narrow {\n\t\t\tkey {header.X-Account}\n\t\t\trule 20/1h sliding_log\n\t\t}\n\t}",
	}
	for name, site := range sites {
		t.Run(name, func(t *testing.T) {
			redis := harness.StartRedis(t)
			caddy := harness.StartCaddy(t, harness.Config{
				Global: onRedis(redis, "timeout 10s"), Site: site + "\n\trespond ok",
			})
			get := func() int { return caddy.Get(t, "/", "X-Account", "alice").Status }

			get()                       // loads the script,
			awaitSubscription(t, redis) // and the first heartbeat may, too: then the next puts back what is known
			loaded := redis.Calls(t)
			harness.Until(t, harness.Patience, "heartbeats", func() bool { return redis.Calls(t) >= loaded+6 })
			oneCallEach(t, redis, 19, 19, get, http.StatusOK)
			before := redis.Dumps(t)
			time.Sleep(1100 * time.Millisecond)                          // what Redis said is too old to deny by it
			oneCallEach(t, redis, 5, 1, get, http.StatusTooManyRequests) // the others are denied without a call
			if after := redis.Dumps(t); !maps.Equal(before, after) {
				t.Errorf("denied requests changed Redis:\nbefore %q\nafter  %q", before, after)
			}
			if len(before) == 0 {
				t.Error("no keys in Redis: nothing was compared")
			}
			wantNoFallback(t, []*harness.Caddy{caddy})
		})
	}
}

// TestHeartbeatsAreNotCounted checks that a heartbeat is not mistaken for a
// request's call: two heartbeats run while no request is sent.
func TestHeartbeatsAreNotCounted(t *testing.T) {
	redis := harness.StartRedis(t)
	harness.StartCaddy(t, harness.Config{
		Global: onRedis(redis, "timeout 10s"), Site: "\trate_limit 5/1h\n\trespond ok",
	})
	awaitSubscription(t, redis)
	commands := redis.Watch(t, func() {
		before := redis.Calls(t)
		harness.Until(t, harness.Patience, "two heartbeats", func() bool { return redis.Calls(t) >= before+2 })
	})
	if calls := scriptCalls(t, commands); len(calls) > 0 {
		t.Errorf("without a request: calls of EVALSHA by script: %v", calls)
	}
}

// awaitSubscription waits until an instance has sent its first heartbeat and has subscribed
// to resets.
func awaitSubscription(t *testing.T, redis *harness.Redis) {
	t.Helper()
	harness.Until(t, harness.Patience, "a heartbeat and a subscription", func() bool {
		resets := "diana:{resets}"
		return redis.Exists(t.Context(), "diana"+harness.Maintenance).Val() == 1 &&
			redis.PubSubNumSub(t.Context(), resets).Val()[resets] == 1
	})
}

// oneCallEach sends n requests, each of which must return status, and fails the
// test unless Redis ran at least least and at most n EVALSHA, all of one script, and
// no other command.
func oneCallEach(t *testing.T, redis *harness.Redis, n, least int, get func() int, status int) {
	t.Helper()
	commands := redis.Watch(t, func() {
		for i := range n {
			if got := get(); got != status {
				t.Errorf("request %d: status %d, want %d", i+1, got, status)
			}
		}
	})
	calls, all := scriptCalls(t, commands), 0
	for _, c := range calls {
		all += c
	}
	if len(calls) > 1 || all < least || all > n {
		t.Errorf("%d requests made calls of EVALSHA by script: %v, want %d to %d of one", n, calls, least, n)
	}
}

// scriptCalls counts the EVALSHA commands by script. It fails the test on any other
// command that a request could have caused.
func scriptCalls(t *testing.T, commands []string) map[string]int {
	t.Helper()
	calls := make(map[string]int)
	for _, command := range commands {
		switch _, name, _ := strings.Cut(strings.ToLower(command), `] "`); {
		case strings.Contains(name, "its user may not run") || strings.Contains(name, `}:try" "`) || name == `info"` || name == `ping"` || strings.HasPrefix(name, `info" "commandstats"`):
			// Sent in the background for warnings, by the subscription, or by the harness.
		case strings.HasPrefix(name, `evalsha" `):
			sha, _, _ := strings.Cut(strings.TrimPrefix(name, `evalsha" "`), `"`)
			calls[sha]++
		case strings.HasPrefix(name, `hello" `) || strings.HasPrefix(name, `auth" `):
			// The pool opens a connection in the background.
		default:
			t.Errorf("unexpected command: %.300s", command)
		}
	}
	return calls
}
