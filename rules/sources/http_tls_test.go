package sources

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// TestPrivateCA checks that a server with a certificate of a private authority is read only with ca.
func TestPrivateCA(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"zones": {}}`)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	for ca, ok := range map[string]bool{"": false, file: true} {
		h := &HTTP{URL: s.URL, CA: ca}
		if err := h.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		if text, err := h.Fetch(t.Context()); (err == nil) != ok {
			t.Errorf("ca %q: %s, %v", ca, text, err)
		}
	}
	for _, h := range []*HTTP{{URL: s.URL, CA: file + "x"}, {URL: "http://127.0.0.1:1", CA: file}} {
		if err := h.Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), "ca") {
			t.Errorf("%s with ca %s: %v", h.URL, h.CA, err)
		}
	}
}

// TestSlowDocument checks what is said of a server that begins to answer, and does not end.
func TestSlowDocument(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	h := &HTTP{URL: s.URL}
	if err := h.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Fetch(ctx); err == nil || !strings.HasSuffix(err.Error(), "no answer within 10s") || strings.Count(err.Error(), "127.0.0.1") != 1 {
		t.Errorf("%v", err)
	}
}
