package xcaddytest

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// aclBlock matches the fenced block that follows the marker in docs/redis.md.
var aclBlock = regexp.MustCompile("(?s)<!-- acl -->\\s*```\\w*\\n(.*?)```")

// documentedACL returns the Redis user in docs/redis.md: its name, password and
// permissions.
func documentedACL(t *testing.T) (user, password string, rights []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	block := aclBlock.FindSubmatch(page)
	if block == nil {
		t.Fatal("no ACL in docs/redis.md")
	}
	words := strings.Fields(string(block[1]))
	if len(words) < 3 || words[0] != "user" {
		t.Fatalf("the ACL in docs/redis.md is %q, want: user <name> on ><password> <permissions>", block[1])
	}
	for _, word := range words[2:] {
		if word, is := strings.CutPrefix(word, ">"); is {
			password = word
		} else {
			rights = append(rights, word)
		}
	}
	return words[1], password, rights
}

// everything uses every option that sends commands to Redis.
const everything = `	rate_limit /all {
		zone all {
			key {query.k}
			rule 100000/1h fixed_window
			rule 100000/1h sliding_log
			rule 100000/1h sliding_window
			rule 100000/1h token_bucket
			rule 100000/1h token_bucket step 1m
			rule 100000/1h leaky_bucket nodelay
			rule 100000/1h gcra
			cost 2
		}
		zone other {
			rule 100000/1h sliding_log
		}
	}
	rate_limit /held {
		zone held {
			rule 1000/1s
			in_flight 100
		}
	}
	rate_limit /failed {
		zone failed {
			rule 1000/1s
			count_status 4xx
		}
	}
	rate_limit /settled {
		zone settled {
			rule 1000/1s gcra
			settle {http.response.header.X-Tokens}
		}
	}
	rate_limit /twice {
		zone twice {
			rule 1000/1s
			prevent_duplicates 1s
		}
	}
	rate_limit /shadow {
		zone shadow {
			rule 2/1h
			shadow
		}
	}
	header /settled X-Tokens 3
	respond /failed 404
	respond ok`

// TestDocumentedACLIsSufficient checks that the permissions in docs/redis.md cover every
// command that Diana sends to Redis.
func TestDocumentedACLIsSufficient(t *testing.T) {
	redis, caddy := withPermissions(t, nil)
	// Long enough for a key's TTL to be extended.
	for more := harness.During(3 * time.Second); more(); {
		sendAll(t, caddy)
	}
	if log, err := redis.ACLLog(context.Background(), 10).Result(); err != nil || len(log) > 0 {
		t.Errorf("Redis denied a command (%v): %v", err, log)
	}
	if strings.Contains(caddy.Log(), `"level":"error"`) {
		t.Errorf("errors in the log:\n%s", caddy.Log())
	}
	wantNoFallback(t, []*harness.Caddy{caddy})
}

// TestMissingPermissionIsLogged checks that any missing permission is logged as an
// error and that no request is rejected because of it.
func TestMissingPermissionIsLogged(t *testing.T) {
	_, _, rights := documentedACL(t)
	for _, right := range rights {
		if !strings.ContainsAny(right[:1], "+~&") {
			continue // a denied permission
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			_, caddy := withPermissions(t, []string{right})
			harness.Until(t, harness.Patience, "an error is logged", func() bool {
				sendAll(t, caddy)
				return strings.Contains(caddy.Log(), `"level":"error"`)
			})
		})
	}
}

// withPermissions starts a Redis that has docs/redis.md's user without the listed
// permissions, and a Caddy that uses it.
func withPermissions(t *testing.T, without []string) (*harness.Redis, *harness.Caddy) {
	t.Helper()
	user, password, rights := documentedACL(t)
	redis := harness.StartRedis(t)
	rights = slices.DeleteFunc(rights, func(right string) bool { return slices.Contains(without, right) })
	set := []any{"acl", "setuser", user, ">" + password}
	for _, right := range rights {
		set = append(set, right)
	}
	if err := redis.Do(context.Background(), set...).Err(); err != nil {
		t.Fatalf("the ACL in docs/redis.md: %v", err)
	}
	one := goredis.NewClient(&goredis.Options{Addr: redis.Addr, DB: 1})
	defer func() { _ = one.Close() }()
	if err := one.Set(context.Background(), "diana:rules", `{"zones": {}}`, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	caddy := harness.StartCaddy(t, harness.Config{
		Global: onRedisWith(redis, "rules redis diana:rules", "username "+user, "password {env.REDIS_PASSWORD}", "timeout 10s", "db 1"), Site: everything,
	}, "REDIS_PASSWORD="+password)
	return redis, caddy
}

// sendAll sends requests to every path and fails the test on a 5xx status.
func sendAll(t *testing.T, caddy *harness.Caddy) {
	t.Helper()
	for _, path := range []string{"/all", "/held", "/failed", "/settled", "/twice", "/shadow"} {
		answer := caddy.Get(t, path+"?k=one")
		if answer.Status >= http.StatusInternalServerError {
			t.Fatalf("%s: status %d", path, answer.Status)
		}
	}
	harness.Do(t, http.MethodPost, caddy.URL+"/twice", "")
	harness.Do(t, http.MethodDelete, caddy.Admin+"/rate_limit/zones/all/key?part=one", "")
}
