package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// wantStored checks that a site counts in Redis, in which keys lists the keys.
func wantStored(t *testing.T, srv *redistest.Server, c setup, keys func() []string) {
	t.Helper()
	s := serve(t, c)
	s.want(req{}, 200, 429)
	if lines := s.log.lines(t, storeIsDown); len(lines) > 0 {
		t.Fatalf("%v", lines[0])
	}
	if got := keys(); len(got) == 0 {
		t.Error("no key in Redis")
	}
	if strings.Contains(s.log.text(), "canary") {
		t.Error("the log shows a password")
	}
}

// TestRedisAddresses connects to a server by every form of address, with secrets
// from every source.
func TestRedisAddresses(t *testing.T) {
	socket := unixSocket(t)
	srv := redistest.Start(t, "--requirepass", "canary", "--unixsocket", socket, "--unixsocketperm", "700")
	client := srv.Client()
	keysOf := func(db int, prefix string) func() []string {
		return func() []string {
			conn := client.Conn()
			defer func() { _ = conn.Close() }()
			ctx := context.Background()
			if err := conn.Auth(ctx, "canary").Err(); err != nil {
				t.Fatal(err)
			}
			if err := conn.Select(ctx, db).Err(); err != nil {
				t.Fatal(err)
			}
			keys, err := conn.Keys(ctx, prefix+":*:z:*").Result()
			if err != nil {
				t.Fatal(err)
			}
			return keys
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DIANA_TEST_SECRET", "canary")
	t.Setenv("DIANA_TEST_ADDR", srv.Addr)
	until(t, "Redis to listen at its socket, too", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	site := "rate_limit {\nzone z {\nrule 1/1h\n}\n}\nrespond ok"
	for name, c := range map[string]struct {
		db      int
		address string
		lines   []string
	}{
		"file":    {0, srv.Addr, []string{"password {file." + file + "}"}},
		"env":     {1, "{env.DIANA_TEST_ADDR}", []string{"password {env.DIANA_TEST_SECRET}", "db 1"}},
		"URL":     {2, "redis://:{env.DIANA_TEST_SECRET}@" + srv.Addr + "/2", nil},
		"socket":  {3, "unix/" + socket, []string{"password {env.DIANA_TEST_SECRET}", "db 3"}},
		"no port": {4, "redis://:canary@localhost:" + strconv.Itoa(srv.Port), []string{"db 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := "p" + strconv.Itoa(c.db)
			lines := append([]string{"timeout 10s", "key_prefix " + prefix}, c.lines...)
			wantStored(t, srv, setup{app: redisStore(c.address, lines...), site: site}, keysOf(c.db, prefix))
		})
	}
	t.Run("wrong password", func(t *testing.T) {
		s := serve(t, setup{app: redisStore(srv.Addr, "password canary-wrong", "timeout 10s", "dial_timeout 10s"), site: site})
		s.want(req{}, 200, 429) // without Redis
		line := s.log.wait(t, "Redis rejects calls: on_failure applies")
		if text, _ := line["error"].(string); !strings.HasPrefix(text, "WRONGPASS") || strings.Contains(s.log.text(), "canary-wrong") {
			t.Errorf("log line %v", line)
		}
		line = s.log.wait(t, "Redis rejects the subscription to the channel on which instances announce resets of keys")
		if text, _ := line["advice"].(string); !strings.Contains(text, "password") || strings.Contains(text, "+subscribe") {
			t.Errorf("log line %v, want advice about the password", line)
		}
	})
}

// TestRedisOverTLS checks that a server whose certificate is signed by the
// configured CA is trusted and that no other one is.
func TestRedisOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir)
	port := strings.TrimPrefix(unusedAddr(t), "127.0.0.1:")
	srv := redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	site := "rate_limit {\nzone z {\nrule 1/1h\n}\n}\nrespond ok"
	keys := func() []string { return srv.Client().Keys(context.Background(), "*:z:*").Val() }
	for name, lines := range map[string][]string{
		"trusted":      {"key_prefix a", "tls {\nca " + cert + "\n}"},
		"with a name":  {"key_prefix b", "tls {\nca " + cert + "\nserver_name redis.example\n}"},
		"both sides":   {"key_prefix c", "tls {\nca " + cert + "\ncert " + cert + "\nkey " + key + "\n}"},
		"not examined": {"key_prefix d", "tls {\ninsecure_skip_verify\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(name, "sides") {
				if err := srv.Client().ConfigSet(context.Background(), "tls-auth-clients", "no").Err(); err != nil {
					t.Fatal(err)
				}
			} else if err := srv.Client().ConfigSet(context.Background(), "tls-auth-clients", "yes").Err(); err != nil {
				t.Fatal(err)
			}
			wantStored(t, srv, setup{app: redisStore("127.0.0.1:"+port, append(lines, "timeout 10s")...), site: site}, keys)
		})
	}
	t.Run("not trusted", func(t *testing.T) {
		s := serve(t, setup{app: redisStore("rediss://127.0.0.1:"+port, "timeout 10s"), site: site})
		s.want(req{}, 200, 429)
		if line := s.log.wait(t, storeIsDown); !strings.Contains(line["error"].(string), "certificate") {
			t.Errorf("log line %v", line)
		}
	})
}

func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis.example"}, DNSNames: []string{"redis.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestStoresOfOneProcessAreOneInstance configures two stores with one address: without
// Redis, the only instance enforces its limits in full.
func TestStoresOfOneProcessAreOneInstance(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 2s") + redisStore(srv.Addr, "timeout 2s", "name other"), site: `
		rate_limit {
			zone one {
				match path /one
				rule 6/1h
			}
			zone other {
				match path /other
				rule 6/1h
				store other
			}
		}
		respond ok`})
	until(t, "both to have counted twice", func() bool {
		for _, v := range pool.Values("stores") {
			if v.(stores.Shared).Status().Instances == 0 {
				return false
			}
		}
		line := srv.Client().Info(context.Background(), "commandstats").Val() // each heartbeat calls PEXPIRE once
		_, line, _ = strings.Cut(line, "cmdstat_pexpire:calls=")
		n, _ := strconv.Atoi(line[:max(0, strings.IndexByte(line, ','))])
		return n >= 6
	})
	for _, v := range pool.Values("stores") {
		if n := v.(stores.Shared).Status().Instances; n != 1 {
			t.Errorf("%d instances, want 1", n)
		}
	}
	srv.Kill()
	for _, path := range []string{"/one", "/other"} {
		s.want(req{path: path}, 200, 200, 200, 200, 200, 200, 429)
	}
}

// TestKeysKeptForAnOutage checks that the keys of a zone in Redis that are counted as kept in
// this process are those of which it knows something.
func TestKeysKeptForAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 10s"), site: "rate_limit {\nzone kept {\nrule 2/1h\n}\n}\nrespond ok"})
	for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		s.want(req{ip: ip}, 200, 200, 429)
	}
	if n, shown := s.metric("keys", "zone", "kept"), s.zones().Zones[0].Keys; n != 3 || shown != 3 {
		t.Errorf("%v keys in the metric, %d in the answer, want 3", n, shown)
	}
}
