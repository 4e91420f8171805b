package sources

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
)

// editable returns a source in Redis, as the default user or another, and a client.
func editable(t *testing.T, user string) (*Redis, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client := server.Client()
	client.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">x", "allkeys", "allchannels", "+@all", "-multi")
	r := &Redis{Key: "diana:rules", Address: "redis://" + user + server.Addr}
	if err := r.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.redis().Close() })
	return r, client
}

// TestReplace replaces a document if it is the one that is expected, also one that is
// changed while it is compared.
func TestReplace(t *testing.T) {
	r, client := editable(t, "")
	ctx := t.Context()
	is := func(want string) func([]byte) bool {
		return func(old []byte) bool { return string(old) == want }
	}
	if err := r.Replace(ctx, []byte("one"), rules.Change{}, is("other")); !errors.Is(err, rules.ErrChanged) {
		t.Errorf("no document: %v, want rules.ErrChanged", err)
	}
	if err := r.Replace(ctx, []byte("one"), rules.Change{}, is("")); err != nil {
		t.Error(err)
	}
	if err := r.Replace(ctx, []byte("two"), rules.Change{}, is("")); !errors.Is(err, rules.ErrChanged) {
		t.Errorf("another document: %v, want rules.ErrChanged", err)
	}
	err := r.Replace(ctx, []byte("two"), rules.Change{}, func(old []byte) bool {
		client.Set(ctx, "diana:rules", "raced", 0)
		return string(old) == "one"
	})
	if now := client.Get(ctx, "diana:rules").Val(); !errors.Is(err, rules.ErrChanged) || now != "raced" {
		t.Errorf("a document that was written meanwhile: %v, want rules.ErrChanged; now it is %q", err, now)
	}
	for _, err := range []error{r.Replace(ctx, []byte("two"), rules.Change{}, is("raced")), r.Replace(ctx, []byte("three"), rules.Change{}, is("two"))} {
		if err != nil {
			t.Error(err)
		}
	}
	if text, err := r.Fetch(ctx); err != nil || string(text) != "three" {
		t.Errorf("%q, %v, want three", text, err)
	}
}

// TestReplaceWithoutRights checks that nothing is written without the right to transactions.
func TestReplaceWithoutRights(t *testing.T) {
	r, client := editable(t, "limited:x@")
	err := r.Replace(t.Context(), []byte("one"), rules.Change{}, func([]byte) bool { return true })
	if now := client.Get(t.Context(), "diana:rules").Val(); err == nil || !strings.Contains(err.Error(), "NOPERM") || now != "" {
		t.Errorf("%v, and the document is %q: want NOPERM, and none", err, now)
	}
}
