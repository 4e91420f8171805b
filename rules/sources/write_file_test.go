package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
)

func fileAt(t *testing.T, path string) *File {
	t.Helper()
	f := &File{Path: path}
	if err := f.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return f
}

func whatever([]byte) bool { return true }

// TestReplaceFile checks that a document is replaced through symbolic links, as a whole, with its
// mode, and that the changes and the document before it are recorded.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real", "rules.json"), filepath.Join(dir, "rules.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.Symlink(filepath.Join("real", "rules.json"), link)); err != nil {
		t.Fatal(err)
	}
	f, ctx := fileAt(t, link), t.Context()
	if past, err := f.Past(ctx); err != nil || past.Previous != nil || past.Changes != nil {
		t.Errorf("%v, %v: want no past", past, err)
	}
	if err := f.Replace(ctx, []byte("one"), rules.Change{Who: "ann", What: "put"}, func(old []byte) bool { return old == nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := f.Replace(ctx, []byte("two"), rules.Change{}, func(old []byte) bool { return string(old) != "one" }); !errors.Is(err, rules.ErrChanged) {
		t.Errorf("%v, want rules.ErrChanged", err)
	}
	for i := range maxChanges {
		if err := f.Replace(ctx, fmt.Append(nil, i), rules.Change{Why: fmt.Sprint(i)}, whatever); err != nil {
			t.Fatal(err)
		}
	}
	text, err := f.Fetch(ctx)
	info, err2 := os.Stat(file)
	if err := errors.Join(err, err2); err != nil || string(text) != "49" || info.Mode().Perm() != 0o640 {
		t.Errorf("%s, %v, %v: want 49 with mode 0640", text, info.Mode(), err)
	}
	if to, err := os.Readlink(link); err != nil {
		t.Errorf("the link is gone, there is %q: %v", to, err)
	}
	past, err := f.Past(ctx)
	if err != nil || string(past.Previous) != "48" || len(past.Changes) != maxChanges || past.Changes[0].Why != "49" || past.Changes[maxChanges-1].Why != "0" {
		t.Errorf("%s before, %d changes %v, %v", past.Previous, len(past.Changes), past.Changes, err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(names) != 3 {
		t.Errorf("files %v, want three", names)
	}
}

// TestEmptyFileHasNoDocument checks that a file without a document, or with nothing but blanks, is as
// one that is not there, and can be written.
func TestEmptyFileHasNoDocument(t *testing.T) {
	for _, text := range []string{"", " \n\t\r\n"} {
		path, ctx := filepath.Join(t.TempDir(), "rules.json"), t.Context()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := fileAt(t, path)
		if read, err := f.Fetch(ctx); !errors.Is(err, rules.ErrEmpty) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %q, %v, want rules.ErrEmpty of %s", text, read, err, path)
		}
		if err := f.Replace(ctx, []byte("one"), rules.Change{}, func(old []byte) bool { return old == nil }); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		read, err := f.Fetch(ctx)
		past, err2 := f.Past(ctx)
		if err := errors.Join(err, err2); err != nil || string(read) != "one" || string(past.Previous) != rules.NoDocument {
			t.Errorf("%q: %q after %q, %v", text, read, past.Previous, err)
		}
	}
}

// TestUnwritableFile checks that nothing is written where a file cannot be, and that the error
// says so.
func TestUnwritableFile(t *testing.T) {
	dir := t.TempDir()
	f := fileAt(t, filepath.Join(dir, "gone", "rules.json"))
	if err := f.Replace(t.Context(), []byte("one"), rules.Change{}, whatever); err == nil || !strings.Contains(err.Error(), "cannot be written") || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestTwentyWriters checks that of twenty who replace the same document at the same time one
// does, and the others are told.
func TestTwentyWriters(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	for name, open := range map[string]func() rules.Writer{
		"file": func() rules.Writer { return fileAt(t, filepath.Join(dir, "rules.json")) },
		"redis": func() rules.Writer {
			r := &Redis{Key: "diana:rules", Address: "redis://" + server.Addr}
			if err := r.Provision(caddy.Context{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.redis().Close() })
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 5 {
				before := ""
				if round > 0 {
					text, err := open().Fetch(t.Context())
					if before = string(text); err != nil {
						t.Fatal(err)
					}
				}
				const writers = 20
				var won, told atomic.Int32
				begin, done := make(chan struct{}), make(chan error, writers)
				for i := range writers {
					w := open()
					go func() {
						<-begin
						err := w.Replace(t.Context(), fmt.Appendf(nil, "%d by %d", round, i), rules.Change{What: fmt.Sprint(round)}, func(old []byte) bool { return string(old) == before })
						switch {
						case err == nil:
							won.Add(1)
						case errors.Is(err, rules.ErrChanged):
							told.Add(1)
						}
						done <- err
					}()
				}
				close(begin)
				for range writers {
					if err := <-done; err != nil && !errors.Is(err, rules.ErrChanged) {
						t.Error(err)
					}
				}
				past, err := open().Past(t.Context())
				if won.Load() != 1 || told.Load() != writers-1 || len(past.Changes) != round+1 || err != nil {
					t.Errorf("round %d: %d won, %d were told, %d changes, %v: want 1, %d, %d", round, won.Load(), told.Load(), len(past.Changes), err, writers-1, round+1)
				}
			}
		})
	}
}

// TestPastInRedis checks what is recorded in Redis, and that it outlives a key without it.
func TestPastInRedis(t *testing.T) {
	r, client := editable(t, "")
	ctx := t.Context()
	if past, err := r.Past(ctx); err != nil || past.Previous != nil || past.Changes != nil {
		t.Errorf("%v, %v: want no past", past, err)
	}
	for _, text := range []string{"one", "two"} {
		if err := r.Replace(ctx, []byte(text), rules.Change{Who: "ann", What: text}, whatever); err != nil {
			t.Fatal(err)
		}
	}
	past, err := r.Past(ctx)
	if err != nil || string(past.Previous) != "one" || len(past.Changes) != 2 || past.Changes[0].What != "two" || past.Changes[1].Who != "ann" {
		t.Errorf("%s, %v, %v", past.Previous, past.Changes, err)
	}
	if keys := client.Keys(ctx, "*").Val(); len(keys) != 3 {
		t.Errorf("keys %v, want three", keys)
	}
	client.Set(ctx, "diana:rules:changes", "no list", redis.KeepTTL)
	if err := r.Replace(ctx, []byte("three"), rules.Change{}, whatever); err != nil {
		t.Error(err)
	}
}

// TestPastInCluster checks that a document in a Redis Cluster and what is recorded of it are in one
// slot, by a hash tag, without which they could not be written in one transaction.
func TestPastInCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[0].Addr}})
	t.Cleanup(func() { _ = client.Close() })
	ctx := t.Context()
	for key, beside := range map[string]string{"diana:rules": "{diana:rules}:", "other": "{other}:"} {
		r := &Redis{Key: key}
		err := errors.Join(r.Provision(caddy.Context{}), r.UseStore("", "", func() redis.UniversalClient { return client }))
		for _, text := range []string{"one", "two"} {
			err = errors.Join(err, r.Replace(ctx, []byte(text), rules.Change{What: text}, whatever))
		}
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if err := r.Replace(ctx, []byte("three"), rules.Change{}, func(old []byte) bool { return string(old) != "two" }); !errors.Is(err, rules.ErrChanged) {
			t.Errorf("%s: %v, want rules.ErrChanged", key, err)
		}
		text, err := r.Fetch(ctx)
		past, err2 := r.Past(ctx)
		if err := errors.Join(err, err2); err != nil || string(text) != "two" || string(past.Previous) != "one" || len(past.Changes) != 2 || past.Changes[0].What != "two" {
			t.Errorf("%s: %s, before %s, changes %v, %v", key, text, past.Previous, past.Changes, err)
		}
		slot := client.ClusterKeySlot(ctx, key).Val()
		for _, name := range []string{beside + besideChanges, beside + besidePrevious} {
			if there := client.Exists(ctx, name).Val(); there != 1 || client.ClusterKeySlot(ctx, name).Val() != slot {
				t.Errorf("%s: %s is there: %d, in slot %d, want %d", key, name, there, client.ClusterKeySlot(ctx, name).Val(), slot)
			}
		}
	}
}
