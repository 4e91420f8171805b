package redistest

import (
	"bufio"
	"errors"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Gateway is a proxy in front of several servers, which it looks like one server. It sends each command to the
// server of its first key, and one without a key to the first server, as twemproxy and Envoy do.
type Gateway struct {
	Addr string // host:port

	servers []string

	mu    sync.Mutex
	meets func(command []string, server int) (reply string)
}

// What a Gateway may do with a command in place of giving a reply.
const (
	Cut    = "cut"    // close the connection
	Silent = "silent" // answer nothing on it any more
)

// StartGateway starts a Gateway.
func StartGateway(tb testing.TB, servers ...*Server) *Gateway {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	g := &Gateway{Addr: l.Addr().String()}
	for _, s := range servers {
		g.servers = append(g.servers, s.Addr)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(c)
		}
	}()
	return g
}

// Meet has commands meet something in place of their server: the reply, with its type and without its last line
// end, or Cut or Silent. Those pass for which the reply is empty. nil: all pass.
func (g *Gateway) Meet(meets func(command []string, server int) (reply string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meets = meets
}

// ServerOf returns the number of a key's server.
func (g *Gateway) ServerOf(key string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key)
	return int(h.Sum32()>>8) % len(g.servers)
}

// firstKey returns the first key of a command, empty if it has none.
func firstKey(command []string) string {
	switch name := strings.ToLower(command[0]); {
	case strings.HasPrefix(name, "eval"):
		if len(command) > 3 && command[2] != "0" {
			return command[3]
		}
	case len(command) > 1 && name != "script" && name != "hello" && name != "auth" && name != "select":
		return command[1]
	}
	return ""
}

// serve answers the commands of a client.
func (g *Gateway) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	servers := make([]net.Conn, len(g.servers))
	replies := make([]*bufio.Reader, len(g.servers))
	defer func() {
		for _, s := range servers {
			if s != nil {
				_ = s.Close()
			}
		}
	}()
	for from := bufio.NewReader(client); ; {
		raw, command, err := readCommand(from)
		if err != nil {
			return
		}
		i := 0
		if key := firstKey(command); key != "" {
			i = g.ServerOf(key)
		}
		g.mu.Lock()
		meets := g.meets
		g.mu.Unlock()
		reply := ""
		if meets != nil {
			reply = meets(command, i)
		}
		switch reply {
		case Cut:
			return
		case Silent:
			_, _ = io.Copy(io.Discard, client)
			return
		case "":
			if reply, err = ask(raw, g.servers[i], &servers[i], &replies[i]); err != nil {
				return
			}
		default:
			reply += "\r\n"
		}
		if _, err := io.WriteString(client, reply); err != nil {
			return
		}
	}
}

// ask sends a command to a server, and returns the reply.
func ask(command, addr string, to *net.Conn, from **bufio.Reader) (reply string, err error) {
	if *to == nil {
		if *to, err = net.Dial("tcp", addr); err != nil {
			return "", err
		}
		*from = bufio.NewReader(*to)
	}
	if _, err := io.WriteString(*to, command); err != nil {
		return "", err
	}
	return readReply(*from)
}

var errProtocol = errors.New("not Redis' protocol")

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) (raw string, command []string, err error) {
	line, err := r.ReadString('\n')
	n, of := strings.CutPrefix(strings.TrimSpace(line), "*")
	args, _ := strconv.Atoi(n)
	if err != nil || !of || args < 1 {
		return "", nil, errors.Join(errProtocol, err)
	}
	raw = line
	for range args {
		part, err := readReply(r)
		if err != nil {
			return "", nil, err
		}
		raw += part
		_, text, _ := strings.Cut(part, "\r\n")
		command = append(command, strings.TrimSuffix(text, "\r\n"))
	}
	return raw, command, nil
}

// readReply reads a reply of protocol 2.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if n < 0 {
			return line, nil
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		return line + string(text), err
	case '*':
		for range n {
			part, err := readReply(r)
			if err != nil {
				return "", err
			}
			line += part
		}
	}
	return line, nil
}
