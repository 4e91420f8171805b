package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// downEvents records how a store went down and up.
type downEvents struct {
	noObserver
	mu        sync.Mutex
	downs     []string // advice
	ups       int
	lastCause error
}

func (e *downEvents) StoreDown(_, _ string, f stores.Failure, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downs, e.lastCause = append(e.downs, stores.Advice(err)), err
}

func (e *downEvents) StoreUp(string, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ups++
}

func (e *downEvents) advice() (last string, downs, ups int, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.downs); n > 0 {
		last = e.downs[n-1]
	}
	return last, len(e.downs), e.ups, e.lastCause
}

// clusterNode starts a node of a Cluster that serves the slots up to one.
func clusterNode(t *testing.T, last int) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-require-full-coverage", "no")
	if err := srv.Client().ClusterAddSlotsRange(context.Background(), 0, last).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the slots are served", func() bool {
		return strings.Contains(srv.Client().ClusterInfo(context.Background()).Val(), "cluster_state:ok")
	})
	return srv
}

// refused is a way in which what is at the address of a store answers without doing what it is asked.
type refused struct {
	name    string
	options ConnOptions    // but the address
	begins  func(net.Conn) // what the store meets first; nil: what refuses
	refuses func(net.Conn)
	ends    func(*front) // has the store accepted; nil: only other options can
	advice  string       // a part of it
}

// TestRefusalsAreOutages has a store meet servers that refuse all it asks, each in its own words. The store
// is told as away once, with advice; no request calls it then; and it is used again after the cause ends.
func TestRefusalsAreOutages(t *testing.T) {
	good := redistest.Start(t)
	toGood := func(f *front) { f.set(relayTo(good.Addr)) }
	watched := redistest.StartSentinel(t)
	sentinel := relayTo(watched.Sentinels[0].Addr)
	cluster := redistest.StartCluster(t, 3)
	const heartbeats = 1691 // their slot
	few := clusterNode(t, heartbeats)
	limited := redistest.Start(t)
	if err := limited.Client().Do(context.Background(), "acl", "setuser", "half", "on", ">secret", "~diana:{"+beatTag+"}*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	renamed := func(command string) func(net.Conn) {
		return relayTo(redistest.Start(t, "--rename-command", command, "").Addr)
	}
	for _, c := range []refused{
		{"cluster against a single Redis", ConnOptions{Cluster: true}, nil, relayTo(good.Addr), func(f *front) { f.set(relayTo(cluster[0].Addr)) }, "leave cluster out"},
		{"sentinel against a Redis", ConnOptions{Master: redistest.SentinelMaster}, nil, relayTo(good.Addr), func(f *front) { f.set(sentinel) }, "leave sentinel out"},
		{"a Sentinel as store", ConnOptions{}, nil, sentinel, toGood, "write sentinel"},
		{"another master", ConnOptions{Master: "other"}, nil, sentinel, func(*front) {
			for _, s := range watched.Sentinels {
				s.Client().Do(context.Background(), "sentinel", "monitor", "other", "127.0.0.1", good.Port, 1)
			}
		}, "know no master"},
		{"no password for the Sentinels", ConnOptions{Master: redistest.SentinelMaster}, nil, answering("-NOAUTH Authentication required."), func(f *front) { f.set(sentinel) }, "in the sentinel block"},
		{"another password of the Sentinels", ConnOptions{Master: redistest.SentinelMaster}, nil, answering("-WRONGPASS invalid username-password pair or user is disabled."), func(f *front) { f.set(sentinel) }, "in the sentinel block"},
		{"Sentinels without a password", ConnOptions{Master: redistest.SentinelMaster}, nil, answering("-ERR AUTH <password> called without any password configured for the default user."), func(f *front) { f.set(sentinel) }, "in the sentinel block"},
		{"a master of a Cluster as store", ConnOptions{}, nil, relayTo(cluster[heartbeats*3/16384].Addr), toGood, "write cluster"},
		{"some slots of a Cluster as store", ConnOptions{}, nil, relayTo(few.Addr), func(*front) {
			few.Client().ClusterAddSlotsRange(context.Background(), heartbeats+1, 16383)
		}, "does not serve all slots"},
		{"no EVALSHA", ConnOptions{}, nil, renamed("EVALSHA"), toGood, "EVALSHA"},
		{"no PEXPIRE", ConnOptions{}, nil, renamed("PEXPIRE"), toGood, "do not rename"},
		{"no such database", ConnOptions{DB: 99}, nil, relayTo(good.Addr), func(f *front) {
			f.set(relayTo(redistest.Start(t, "--databases", "100").Addr))
		}, "lower db"},
		{"some keys", ConnOptions{Username: "half", Password: "secret"}, nil, relayTo(limited.Addr), func(*front) {
			limited.Client().Do(context.Background(), "acl", "setuser", "half", "~diana:*")
		}, "lacks a permission"},
		{"a proxy", ConnOptions{}, relayTo(good.Addr), answering("-upstream failure"), toGood, "a proxy in front of it"},
		{"a proxy at first", ConnOptions{}, nil, answering("-ERR no upstream host"), toGood, "a proxy in front of it"},
		{"OK to everything", ConnOptions{}, relayTo(good.Addr), answering("+OK"), toGood, ""},
		{"an empty reply", ConnOptions{}, relayTo(good.Addr), answering("$0\r\n"), toGood, ""},
		{"another Lua", ConnOptions{}, nil, answering("-ERR user_script:12: Script attempted something"), toGood, "cannot run Diana's script"},
		{"always NOSCRIPT", ConnOptions{}, relayTo(good.Addr), answering("-NOSCRIPT No matching script."), toGood, ""},
		{"protected mode", ConnOptions{}, nil, saying("-DENIED Redis is running in protected mode because protected mode is enabled\r\n"), toGood, "protected mode"},
		{"a server of HTTP", ConnOptions{}, nil, saying("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), toGood, "not Redis"},
		{"memcached", ConnOptions{}, nil, answering("ERROR"), toGood, "not Redis"},
		{"a replica", ConnOptions{}, relayTo(good.Addr), answering("-READONLY You can't write against a read only replica."), toGood, "replica"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c *refused) run(t *testing.T) {
	for range 3 {
		if c.once(t) {
			return
		}
	}
	t.Error("the process stood still in each run")
}

// once reports whether the process ran all the time: else the cause may be that.
func (c *refused) once(t *testing.T) (ran bool) {
	f := newFront(t, c.refuses)
	if c.begins != nil {
		f.set(c.begins)
	}
	events, o := new(downEvents), c.options
	o.Addresses, o.Prefix, o.Timeout, o.DialTimeout = []string{f.addr}, "diana", 5*time.Second, 5*time.Second
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: o}, events)
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	counter := counterOfManyKeys(t)
	shared := func() bool { return s.mode(t, counter, newKey()) == stores.ModeShared }
	if c.begins != nil {
		waitFor(t, "Redis decides", shared)
		f.set(c.refuses)
	}
	waitFor(t, "the store is away", func() bool { shared(); return s.isDown() })
	var called int
	for range 20 {
		calls := s.CallStats().Calls
		if shared() {
			t.Fatal("a request calls a store that is away")
		}
		if s.CallStats().Calls != calls {
			called++ // or a probe did at this moment, of which there are few in a second
		}
		time.Sleep(50 * time.Millisecond)
	}
	if called > 5 {
		t.Fatalf("%d of 20 requests call a store that is away", called)
	}
	advice, downs, ups, cause := events.advice()
	if up, _, down := s.State(); up || len(down) != 1 || downs != 1 || ups != 0 {
		t.Errorf("up %v, nodes %v; %d times down, %d up, want it to stay away", up, down, downs, ups)
	}
	if !strings.Contains(advice, c.advice) {
		if strings.Contains(fmt.Sprint(cause), "stood still") {
			return false
		}
		t.Errorf("%v: advice %q, want it to say %q", cause, advice, c.advice)
	}
	if c.ends != nil { // else the store's options are wrong
		c.ends(f)
		waitFor(t, "Redis decides again", shared)
	}
	return true
}

// tlsOptions returns options of a Redis that has a certificate of its own, and the client options that trust it.
func tlsOptions(t *testing.T) (args []string, trusts *tls.Config) {
	t.Helper()
	of := httptest.NewTLSServer(nil)
	of.Close()
	private, err := x509.MarshalPKCS8PrivateKey(of.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.Certificate().Raw})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	trusts = &tls.Config{RootCAs: x509.NewCertPool()}
	trusts.RootCAs.AddCert(of.Certificate())
	return []string{"--tls-cert-file", file, "--tls-key-file", file, "--tls-ca-cert-file", file}, trusts
}

// TestRefusalsOfTLS has a store meet a server that expects TLS, or does not, or has a certificate that is
// not accepted. The advice says which.
func TestRefusalsOfTLS(t *testing.T) {
	args, trusts := tlsOptions(t)
	port := redistest.FreePort(t)
	srv := redistest.Start(t, append(args, "--tls-port", strconv.Itoa(port))...)
	both := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) // asks for a certificate of the client
	port = redistest.FreePort(t)
	redistest.Start(t, append(args, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no")...)
	one := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	other := trusts.Clone()
	other.ServerName = "redis.other"
	late := trusts.Clone()
	late.Time = func() time.Time { return time.Now().AddDate(200, 0, 0) }
	alert := "\x15\x03\x01\x00\x02\x02\x46"
	toOne := func(f *front) { f.set(relayTo(one)) }
	toPlain := func(f *front) { f.set(relayTo(srv.Addr)) }
	for _, c := range []refused{
		{"plain to TLS", ConnOptions{}, nil, relayTo(one), toPlain, "write tls"},
		{"plain to an alert", ConnOptions{}, nil, saying(alert), toPlain, "write tls"},
		{"TLS to plain", ConnOptions{TLS: trusts}, nil, relayTo(srv.Addr), toOne, "leave tls out"},
		{"TLS to a plain Sentinel", ConnOptions{TLS: trusts, Master: "main"}, nil, relayTo(srv.Addr), nil, "write plain"},
		{"unknown authority", ConnOptions{TLS: &tls.Config{}}, nil, relayTo(one), nil, "set ca"},
		{"another name", ConnOptions{TLS: other}, nil, relayTo(one), nil, "set server_name"},
		{"expired", ConnOptions{TLS: late}, nil, relayTo(one), nil, "expired"},
		{"no certificate of the client", ConnOptions{TLS: trusts}, nil, relayTo(both), toOne, "set cert and key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

// TestKeyOfHeartbeatsIsAnotherPrograms has another program use the key in which instances are counted. The
// node runs the script, and is used.
func TestKeyOfHeartbeatsIsAnotherPrograms(t *testing.T) {
	for _, value := range []any{[]any{"rpush"}, []any{"set"}} {
		srv := redistest.Start(t)
		client := srv.Client()
		spoil := append(value.([]any), "diana:{"+beatTag+"}", "nonsense")
		if err := client.Do(context.Background(), spoil...).Err(); err != nil {
			t.Fatal(err)
		}
		events := new(downEvents)
		s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
		}}, events)
		s.Start(1)
		t.Cleanup(func() { _ = s.Destruct() })
		failed := func() bool { return s.conn.nodes.first.breaker.trouble.Load() != 0 }
		srv.Kill()
		waitFor(t, "the store is away", s.isDown)
		srv.Run()
		if err := client.Do(context.Background(), spoil...).Err(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the store is back", func() bool { return !s.isDown() && !failed() })
		if m := client.Type(context.Background(), "diana:{"+beatTag+"}").Val(); m == "none" {
			t.Errorf("the value of the other program is gone")
		}
	}
}

// TestTroubleOpensBreaker leads a breaker through failures that could each concern its call alone.
func TestTroubleOpensBreaker(t *testing.T) {
	var opened []error
	b := newBreaker(time.Second, func() {}, func(up bool, cause error) {
		if !up {
			opened = append(opened, cause)
		}
	})
	wrong := refusal("upstream failure")
	at := func(d time.Duration) time.Time { return b.begun.Add(storekit.Hour + d) }
	b.troubled(at(0))
	b.beatFailed(wrong, at(longestTrouble-1))
	b.success()
	b.beatFailed(wrong, at(longestTrouble))
	b.troubled(at(longestTrouble + 1))
	b.beatFailed(wrong, at(2*longestTrouble-1))
	if len(opened) > 0 {
		t.Fatalf("opened by %v", opened)
	}
	b.beatFailed(wrong, at(2*longestTrouble))
	if len(opened) != 1 || !b.open.Load() {
		t.Errorf("opened by %v, want it open after nothing has succeeded for %v", opened, longestTrouble)
	}
}

// TestPlainSentinels has a Sentinel without TLS name a master with it.
func TestPlainSentinels(t *testing.T) {
	args, trusts := tlsOptions(t)
	port := strconv.Itoa(redistest.FreePort(t))
	redistest.Start(t, append(args, "--tls-port", port, "--tls-auth-clients", "no")...)
	sentinels := newFront(t, answering("*2\r\n$9\r\n127.0.0.1\r\n$"+strconv.Itoa(len(port))+"\r\n"+port))
	s := startStore(t, ConnOptions{Addresses: []string{sentinels.addr}, Master: "main", PlainSentinels: true, TLS: trusts})
	c := counterOfManyKeys(t)
	waitFor(t, "Redis decides", func() bool { return s.mode(t, c, newKey()) == stores.ModeShared })
}
