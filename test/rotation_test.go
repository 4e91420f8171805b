package test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// writeText writes a file that the configuration names.
func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPasswordFilesAreReadAgain changes the password in Redis and then in the file, wherever the configuration
// names the file. The store is used again without a reload, and nothing shows a password.
func TestPasswordFilesAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for name, form := range map[string]func(addr string) string{
		"password": func(addr string) string {
			return redisStore(addr, "username diana", "password {file."+file+"}", "timeout 10s")
		},
		"the address": func(addr string) string {
			return redisStore("redis://diana:{file."+file+"}@"+addr, "timeout 10s")
		},
		"the rules' address": func(addr string) string {
			return redisStore(addr, "username diana", "password {file."+file+"}", "timeout 10s") +
				"rules redis diana:rules {\naddress redis://diana:{file." + file + "}@" + addr + "\ninterval 1s\n}\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			ctx, admin := context.Background(), srv.Client()
			acl := func(args ...any) {
				t.Helper()
				if err := admin.Do(ctx, append([]any{"acl", "setuser", "diana", "on", "allchannels", "allkeys", "+@all"}, args...)...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			acl(">canary-one")
			writeText(t, file, "canary-one\n")
			s := serve(t, setup{app: form(srv.Addr), site: fiveAnHour})
			until(t, "Redis", func() bool { return s.metric("store_up", "store", "redis") == 1 && s.send(req{}).status == 200 })
			acl(">canary-two", "<canary-one")
			if err := admin.Do(ctx, "client", "kill", "user", "diana").Err(); err != nil {
				t.Fatal(err)
			}
			until(t, "the store to be down", func() bool { return s.metric("store_up", "store", "redis") == 0 })
			writeText(t, file, "canary-two\n")
			until(t, "the store to be up", func() bool { return s.metric("store_up", "store", "redis") == 1 })
			if strings.Contains(name, "rules") {
				if err := admin.Set(ctx, "diana:rules", `{"zones": {"z": {"enabled": false}}}`, 0).Err(); err != nil {
					t.Fatal(err)
				}
				until(t, "the rules", func() bool { return s.send(req{ip: "10.0.0.9"}).get("RateLimit") == "" })
			}
			if strings.Contains(s.log.text(), "canary") {
				t.Error("the log shows a password")
			}
		})
	}
}

// TestCertificateFilesAreReadAgain replaces the certificates of both sides, one after the other.
func TestCertificateFilesAreReadAgain(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	cert, key := writeCertificate(t, dir)
	port := strconv.Itoa(redistest.FreePort(t))
	served := filepath.Join(dir, "served.pem") // Redis has copies of its own
	servedKey := filepath.Join(dir, "served-key.pem")
	copyTo := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeText(t, to, string(text))
	}
	copyTo(cert, served)
	copyTo(key, servedKey)
	srv := redistest.Start(t, "--tls-port", port, "--tls-cert-file", served, "--tls-key-file", servedKey, "--tls-ca-cert-file", served)
	s := serve(t, setup{
		app:  redisStore("127.0.0.1:"+port, "timeout 10s", "tls {\nca "+cert+"\ncert "+cert+"\nkey "+key+"\n}"),
		site: fiveAnHour,
	})
	isUp := func(is float64) func() bool {
		return func() bool { return s.metric("store_up", "store", "redis") == is }
	}
	until(t, "Redis", func() bool { return isUp(1)() && s.send(req{}).status == 200 })
	writeCertificate(t, dir) // Redis does not know it, and has another one
	if err := srv.Client().Do(ctx, "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the store to be down", isUp(0))
	copyTo(cert, served)
	copyTo(key, servedKey)
	if err := srv.Client().ConfigSet(ctx, "tls-ca-cert-file", served).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the store to be up", isUp(1))
}
