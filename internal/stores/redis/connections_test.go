package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestLateReadsLook begins reads after their deadline has passed, as a process does that stood
// still. A reply that is there is read, and a read without one times out.
func TestLateReadsLook(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()

	c := &trackedConn{Conn: near, heard: true}
	read := func(late time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(-late)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	if got, err := read(time.Second); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a reply: %q, %v", got, err)
	}
	if _, err := io.WriteString(far, "+OK\r\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the reply", func() bool {
		got, err := read(time.Second)
		return got == "+OK\r\n" && err == nil
	})
}

// TestConnectionsClosedBehindTLS has a server close the idle connections, as after its timeout, and end and
// start again. The next call gets another connection.
func TestConnectionsClosedBehindTLS(t *testing.T) {
	of := httptest.NewTLSServer(nil)
	of.Close()
	private, err := x509.MarshalPKCS8PrivateKey(of.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file, port := filepath.Join(t.TempDir(), "pem"), strconv.Itoa(redistest.FreePort(t))
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.Certificate().Raw})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := redistest.Start(t, "--tls-port", port, "--tls-cert-file", file, "--tls-key-file", file, "--tls-auth-clients", "no")
	c, ctx := newTestConn(ConnOptions{
		Addresses: []string{"127.0.0.1:" + port}, TLS: &tls.Config{InsecureSkipVerify: true},
		Timeout: 5 * time.Second, DialTimeout: 5 * time.Second, Lazy: true, PoolSize: 1,
	}), context.Background()
	defer func() { _ = c.client.Close() }()
	for _, closes := range []func(){
		func() {},
		func() { srv.Client().ClientKillByFilter(ctx, "TYPE", "normal") },
		func() { srv.Kill(); srv.Run() },
	} {
		closes()
		time.Sleep(50 * time.Millisecond) // until the connection's end has arrived
		before := c.nodes.first.tracker.opened.Load()
		for range 3 {
			if err := c.client.Ping(ctx).Err(); err != nil {
				t.Error(err)
			}
		}
		if n := c.nodes.first.tracker.opened.Load() - before; n != 1 {
			t.Errorf("%d connections were opened, want 1", n)
		}
	}
}

// TestSubscriptionBesidePool subscribes while the only connection of the pool to each node is open, as the
// one over which the slots of a Cluster were looked up is.
func TestSubscriptionBesidePool(t *testing.T) {
	t.Parallel()
	for _, o := range []ConnOptions{
		{Addresses: []string{redistest.Start(t).Addr}},
		{Addresses: []string{redistest.StartCluster(t, 3)[0].Addr}, Cluster: true},
	} {
		o.PoolSize, o.Lazy, o.Timeout, o.DialTimeout = 1, true, 5*time.Second, 5*time.Second
		client := NewClient(&o)
		defer func() { _ = client.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if all, ok := client.(*goredis.ClusterClient); ok {
			if err := all.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error { return c.Ping(ctx).Err() }); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		sub := client.Subscribe(ctx, resetChannel("diana"))
		if _, err := sub.ReceiveTimeout(ctx, time.Second); err != nil {
			t.Errorf("cluster %v: %v", o.Cluster, err)
		}
		_ = sub.Close()
	}
}
