package rules

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/option"
)

func init() {
	caddy.RegisterModule((*HTTP)(nil))
}

// HTTP reads rules from an https URL.
type HTTP struct {
	// The URL: https, or http to a loopback address or localhost. {env.*} and {file.*}
	// placeholders are replaced. Redirects are followed only to the same host.
	// Required.
	URL string `json:"url"`

	// The bearer token to send, preferably as {env.*} or {file.*}, which is replaced
	// for every request. Default: none.
	BearerToken string `json:"bearer_token,omitempty"`

	// The interval between requests, at least 1s. Requests are conditional if the
	// server sends an ETag. Default: 30s.
	Interval caddy.Duration `json:"interval,omitempty"`

	url    *url.URL
	client *http.Client
	etag   string
}

const maxRedirects = 5

// CaddyModule returns the Caddy module information.
func (*HTTP) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".http", New: func() caddy.Module { return new(HTTP) }}
}

// Provision implements caddy.Provisioner.
func (h *HTTP) Provision(caddy.Context) error {
	if h.URL == "" {
		return errors.New("url: want such as https://rules.example.com/limits.json")
	}
	text, err := option.Resolve("url", h.URL)
	if err != nil {
		return err
	}
	if h.url, err = url.Parse(text); err != nil || h.url.Host == "" {
		return errors.New("url: invalid: want such as https://rules.example.com/limits.json") // the URL may contain a secret
	}
	if h.url.Scheme != "https" && (h.url.Scheme != "http" || !thisMachine(h.url.Hostname())) {
		return fmt.Errorf("url %s: want https; http only to this machine itself", h.url.Redacted())
	}
	if h.BearerToken != "" {
		if _, err := option.Resolve("bearer_token", h.BearerToken); err != nil {
			return err
		}
	}
	h.client = &http.Client{Timeout: fetchTimeout, CheckRedirect: h.redirect}
	return checkInterval(h.Interval)
}

// thisMachine reports whether the host is this machine.
func thisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

var errRedirect = errors.New("redirects to another host or scheme: want the document's own URL")

// redirect rejects redirects to other hosts, which must neither receive the token nor
// provide rules.
func (h *HTTP) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case r.URL.Host != h.url.Host || r.URL.Scheme != h.url.Scheme:
		return errRedirect
	case len(via) >= maxRedirects:
		return fmt.Errorf("redirects more than %d times", maxRedirects)
	}
	return nil
}

// Fetch implements [Source].
func (h *HTTP) Fetch(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return nil, errors.New("url: invalid")
	}
	r.Header.Set("Accept", "application/json")
	if h.etag != "" {
		r.Header.Set("If-None-Match", h.etag)
	}
	if h.BearerToken != "" {
		token, err := option.Resolve("bearer_token", h.BearerToken)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		return nil, h.plain(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && h.etag != "":
		return nil, ErrUnchanged
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: status %d: want 200", h.url.Host, resp.StatusCode)
	case resp.ContentLength > MaxSize:
		return nil, fmt.Errorf("%s: %w", h.url.Host, errTooLarge)
	}
	text, err := limited(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.url.Host, h.plain(err))
	}
	h.etag = resp.Header.Get("ETag")
	return text, nil
}

// plain returns an error without the URL, which may contain a secret.
func (h *HTTP) plain(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%s: no answer within %v", h.url.Host, fetchTimeout)
	}
	return fmt.Errorf("%s: %w", h.url.Host, u.Err)
}

// Notify implements [Source]. HTTP has no notifications.
func (*HTTP) Notify(context.Context, func(), func(error)) {}

// Every implements [Source].
func (h *HTTP) Every() time.Duration { return interval(h.Interval) }

// Identity implements [Source].
func (h *HTTP) Identity() string { return "http " + h.url.String() + " " + h.BearerToken }

var (
	_ Source            = (*HTTP)(nil)
	_ caddy.Provisioner = (*HTTP)(nil)
)
