package sources

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/configure/external"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/rules"
)

func init() {
	caddy.RegisterModule(new(HTTP))
}

// HTTP reads rules from a URL.
type HTTP struct {
	// The URL: https, or http to a private address or this machine, which is checked
	// when it is dialled. {env.*} and {file.*} placeholders are replaced. Redirects are
	// followed only to the same host and scheme. https uses the proxy of the
	// environment, http none. Required.
	URL string `json:"url"`

	// Headers to send, by name, such as {"Authorization": ["Bearer {env.TOKEN}"]}.
	// {env.*} and {file.*} placeholders are replaced for every request. Default: none.
	Headers http.Header `json:"headers,omitempty"`

	// A PEM file with the certificate authorities to trust. {env.*} and {file.*} placeholders
	// are replaced. It is read when the configuration is loaded. Only for https. Default: the
	// system's.
	CA string `json:"ca,omitempty"`

	// The interval between requests, at least 1s. Requests are conditional if the
	// server sends an ETag. Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	url    *url.URL
	client *http.Client
	etag   string
}

const maxRedirects = 5

// maxHeaderShown is the number of bytes of a name that errors show.
const maxHeaderShown = 100

// CaddyModule returns the Caddy module information.
func (*HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.rule_sources.http", New: func() caddy.Module { return new(HTTP) }}
}

// Provision implements caddy.Provisioner.
func (h *HTTP) Provision(ctx caddy.Context) error {
	if h.URL == "" {
		return errors.New("url: want such as https://rules.example.com/limits.json")
	}
	text, err := external.Resolve("url", h.URL)
	if err != nil {
		return err
	}
	if h.url, err = url.Parse(text); err != nil || h.url.Host == "" {
		return errors.New("url: not a URL: want such as https://rules.example.com/limits.json") // the URL may contain a secret
	}
	switch h.url.Scheme {
	case "https":
	case "http":
		if addr, err := netip.ParseAddr(h.url.Hostname()); err == nil { // of a name, the address is checked when it is dialled
			if err := checkPrivate(addr); err != nil {
				return fmt.Errorf("url: %w", err)
			}
		}
	default:
		return fmt.Errorf("url %s: want https, or http to a private address", h.url.Scheme+"://"+h.url.Host)
	}
	if _, err := h.header(); err != nil {
		return err
	}
	t := newTransport(h.url.Scheme == "https")
	if h.CA != "" {
		if t.TLSClientConfig, err = h.trust(); err != nil {
			return err
		}
	}
	if ctx.Context != nil {
		if dial := process.Of(ctx).Dial; dial != nil {
			t.DialContext = dial
		}
	}
	h.client = &http.Client{Timeout: rules.FetchTimeout, CheckRedirect: h.redirect, Transport: t}
	return checkInterval(h.Interval)
}

// trust returns the TLS configuration that trusts the certificate authorities of the file.
func (h *HTTP) trust() (*tls.Config, error) {
	if h.url.Scheme != "https" {
		return nil, errors.New("ca: want it only for https")
	}
	file, err := external.Resolve("ca", h.CA)
	if err != nil {
		return nil, err
	}
	pool, err := external.CertPool(file)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, err
}

// ownHeaders are set by the client. Accept-Encoding, for it decompresses only what it
// asked for.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Host", "If-None-Match", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// tokenChars are the characters of a header's name (RFC 9110, section 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" //nolint:gosec // no credentials

// header returns the headers of a request, with placeholders replaced. Errors contain no
// value but those of placeholders.
func (h *HTTP) header() (http.Header, error) {
	all := http.Header{"Accept": {"application/json"}}
	for name, values := range h.Headers {
		if name == "" || strings.Trim(name, tokenChars) != "" {
			return nil, fmt.Errorf("header %q: want a name", name[:min(len(name), maxHeaderShown)])
		}
		canonical := http.CanonicalHeaderKey(name)
		if slices.Contains(ownHeaders, canonical) {
			return nil, fmt.Errorf("header %s: HTTP sets it itself: want another header", name)
		}
		all.Del(canonical)
		for _, v := range values {
			v, err := external.Resolve("header "+name, v)
			if err != nil {
				return nil, err
			}
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return nil, fmt.Errorf("header %s: control characters: want a value of one line", name)
			}
			all.Add(canonical, v)
		}
	}
	return all, nil
}

var errRedirect = errors.New("redirects to another host or scheme: want the document's own URL")

// redirect rejects redirects to other hosts, which must neither receive the token nor
// provide rules.
func (h *HTTP) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Host != h.url.Host || r.URL.Scheme != h.url.Scheme:
		return errRedirect
	case len(via) >= maxRedirects:
		return fmt.Errorf("more than %d redirects: want the document's own URL", maxRedirects)
	}
	return nil
}

// Fetch implements [rules.Source].
func (h *HTTP) Fetch(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return nil, errors.New("url: invalid")
	}
	if r.Header, err = h.header(); err != nil {
		return nil, err
	}
	if h.etag != "" {
		r.Header.Set("If-None-Match", h.etag)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.url.Host, plain(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && h.etag != "":
		return nil, rules.ErrUnchanged
	case resp.StatusCode == http.StatusNotFound:
		h.etag = ""
		return nil, fmt.Errorf("%s: status 404: %w", h.url.Host, rules.ErrEmpty)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: status %d: want 200", h.url.Host, resp.StatusCode)
	case resp.ContentLength > rules.MaxSize:
		return nil, fmt.Errorf("%s: %w", h.url.Host, rules.ErrTooLarge)
	}
	text, err := limited(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.url.Host, plain(err))
	}
	h.etag = resp.Header.Get("ETag")
	if !json.Valid(text) { // it may be cut: without a length, the end of the connection is its end
		h.etag = ""
	}
	return text, nil
}

// plain returns an error without the URL, which may contain a secret.
func plain(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Errorf("no answer within %v", rules.FetchTimeout)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// Notify implements [rules.Source]. HTTP has no notifications.
func (h *HTTP) Notify(ctx context.Context, _ func(), _ func(error)) {
	<-ctx.Done()
	h.client.CloseIdleConnections()
}

// Every implements [rules.Source].
func (h *HTTP) Every() time.Duration { return interval(h.Interval) }

// Identity implements [rules.Source].
func (h *HTTP) Identity() string {
	headers, _ := json.Marshal(h.Headers) // in the order of their names
	return "http " + h.url.String() + " " + string(headers) + " " + h.CA
}

// Place implements [rules.Placed]: a header, such as one with a token, may change.
func (h *HTTP) Place() string { return "http " + h.url.String() }

var (
	_ rules.Placed      = (*HTTP)(nil)
	_ caddy.Provisioner = (*HTTP)(nil)
)
