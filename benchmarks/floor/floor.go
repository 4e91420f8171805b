// Package floor provides a Caddy handler that does only one part of a rate limiter's
// work. The cost of that part is a lower bound for any limiter.
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
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("floor", parse)
	httpcaddyfile.RegisterDirectiveOrder("floor", httpcaddyfile.Before, "basic_auth")
}

// The values of Handler.Does.
const (
	doNothing = "nothing" // calls the next handler
	doError   = "error"   // returns an error for handle_errors
	doPing    = "ping"    // sends PING to Redis
	doScript  = "script"  // calls a script in Redis that returns 1
	doShared  = "shared"  // like script, one call for all waiting requests
)

// Handler does one thing for each request.
type Handler struct {
	// The part of the work: nothing, error, ping, script or shared.
	Does string `json:"does"`

	// The address of Redis, host:port.
	Address string `json:"address,omitempty"`

	mu      sync.Mutex
	conn    net.Conn
	r       *bufio.Reader
	command []byte
	reply   string
	queue   queue
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
		h.command, h.reply = []byte("PING\r\n"), "+PONG\r\n"
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
	h.command = []byte("EVALSHA " + strings.TrimSpace(name) + " 0\r\n")
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
		call := h.roundTrip
		if h.Does == doShared {
			call = h.share
		}
		if err := call(); err != nil {
			return caddyhttp.Error(http.StatusInternalServerError, err)
		}
	}
	return next.ServeHTTP(w, r)
}

// queue is the requests that wait during a call to Redis.
type queue struct {
	sync.Mutex
	calling bool
	waiting []chan turn
}

// turn is sent to a waiting request: either the requests to call Redis for, including
// itself, or the result.
type turn struct {
	others []chan turn
	calls  bool
	err    error
}

var turns = sync.Pool{New: func() any { return make(chan turn, 1) }}

// share calls Redis once for all requests that arrived during the previous call.
func (h *Handler) share() error {
	q, a := &h.queue, turn{calls: true}
	q.Lock()
	if q.calling {
		next, _ := turns.Get().(chan turn)
		q.waiting = append(q.waiting, next)
		q.Unlock()
		a = <-next
		turns.Put(next)
	} else {
		q.calling = true
		q.Unlock()
	}
	if !a.calls {
		return a.err
	}
	err := h.roundTrip()
	q.Lock()
	if n := len(q.waiting); n > 0 {
		q.waiting[n-1] <- turn{others: q.waiting[:n-1], calls: true}
		q.waiting = nil
	} else {
		q.calling = false
	}
	q.Unlock()
	for _, o := range a.others {
		o <- turn{err: err}
	}
	return err
}

// roundTrip is one write and one read, without deadline or pool.
func (h *Handler) roundTrip() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.conn.Write(h.command); err != nil {
		return err
	}
	line, err := h.r.ReadSlice('\n')
	if err == nil && string(line) != h.reply {
		err = fmt.Errorf("reply %q: want %q", line, h.reply)
	}
	return err
}

// parse parses floor <does> [<address>].
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
