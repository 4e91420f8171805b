// Package floor is a Caddy handler that does one thing of what a rate limiter has
// to do and nothing else: what that takes, no limiter can take less.
package floor

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule((*Handler)(nil))
	httpcaddyfile.RegisterHandlerDirective("floor", parse)
	httpcaddyfile.RegisterDirectiveOrder("floor", httpcaddyfile.Before, "basic_auth")
}

// What the handler does.
const (
	doNothing = "nothing" // but hand on the request
	doError   = "error"   // answers with an error that handle_errors can catch
	doPing    = "ping"    // asks Redis for a PING
	doScript  = "script"  // asks Redis for a script that returns 1
	doShared  = "shared"  // the same, in one call for all who have come meanwhile
)

// Handler does one thing to each request.
type Handler struct {
	// What it does: nothing, error, ping, script or shared.
	Does string `json:"does"`

	// Where Redis is, host:port.
	Address string `json:"address,omitempty"`

	mu    sync.Mutex
	conn  net.Conn
	r     *bufio.Reader
	ask   []byte
	reply string
	queue queue
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.floor", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(caddy.Context) (err error) {
	switch h.Does {
	case doNothing, doError:
		return nil
	case doPing:
		h.ask, h.reply = []byte("PING\r\n"), "+PONG\r\n"
	case doScript, doShared:
		h.reply = ":1\r\n"
	default:
		return fmt.Errorf("floor %q: want nothing, error, ping, script or shared", h.Does)
	}
	if h.conn, err = net.Dial("tcp", h.Address); err != nil {
		return err
	}
	h.r = bufio.NewReader(h.conn)
	if h.Does == doPing {
		return nil
	}
	if _, err = h.conn.Write([]byte("SCRIPT LOAD 'return 1'\r\n")); err != nil {
		return err
	}
	if _, err = h.r.ReadString('\n'); err != nil { // the length of its name
		return err
	}
	name, err := h.r.ReadString('\n')
	h.ask = []byte("EVALSHA " + strings.TrimSpace(name) + " 0\r\n")
	return err
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.conn == nil {
		return nil
	}
	return h.conn.Close()
}

var errFloor = errors.New("rate limit exceeded")

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.Does == doError {
		return caddyhttp.HandlerError{Err: errFloor, StatusCode: http.StatusTooManyRequests}
	}
	if h.conn != nil {
		ask := h.roundTrip
		if h.Does == doShared {
			ask = h.share
		}
		if err := ask(); err != nil {
			return caddyhttp.Error(http.StatusInternalServerError, err)
		}
	}
	return next.ServeHTTP(w, r)
}

// queue is of those who wait while another one asks.
type queue struct {
	sync.Mutex
	asked   bool
	waiting []chan asker
}

// asker is told to who waits: to ask for these and itself, or the answer.
type asker struct {
	others []chan asker
	asks   bool
	err    error
}

var turns = sync.Pool{New: func() any { return make(chan asker, 1) }}

// share asks for all who have come while another one did.
func (h *Handler) share() error {
	q, a := &h.queue, asker{asks: true}
	q.Lock()
	if q.asked {
		turn, _ := turns.Get().(chan asker)
		q.waiting = append(q.waiting, turn)
		q.Unlock()
		a = <-turn
		turns.Put(turn)
	} else {
		q.asked = true
		q.Unlock()
	}
	if !a.asks {
		return a.err
	}
	err := h.roundTrip()
	q.Lock()
	if n := len(q.waiting); n > 0 {
		q.waiting[n-1] <- asker{others: q.waiting[:n-1], asks: true}
		q.waiting = nil
	} else {
		q.asked = false
	}
	q.Unlock()
	for _, o := range a.others {
		o <- asker{err: err}
	}
	return err
}

// roundTrip is one write and one read, with no deadline and no pool.
func (h *Handler) roundTrip() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.conn.Write(h.ask); err != nil {
		return err
	}
	line, err := h.r.ReadSlice('\n')
	if err == nil && string(line) != h.reply {
		err = fmt.Errorf("answer %q: want %q", line, h.reply)
	}
	return err
}

// parse reads floor <does> [<address>].
func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	c := new(Handler)
	h.Next()
	if !h.Args(&c.Does) {
		return nil, h.ArgErr()
	}
	if h.NextArg() {
		c.Address = h.Val()
	}
	if h.NextArg() {
		return nil, h.ArgErr()
	}
	return c, nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
