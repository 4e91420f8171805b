package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/freeport"
)

// process is a server process.
type process struct {
	name string
	addr string
	pid  int

	cmd   *exec.Cmd
	log   string // file of its output
	ended chan struct{}
}

const (
	bootTime = time.Minute // maximum time until a server listens, on a loaded machine
	stopTime = 10 * time.Second
)

// startProcess starts a server and returns when it listens on its ports.
func startProcess(ctx context.Context, dir, name string, ports []int, program string, args ...string) (*process, error) {
	p := &process{name: name, addr: loopback(ports[0]), log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()                // the server has its own descriptor
	p.cmd = exec.CommandContext(ctx, program, args...) //nolint:gosec // our own program
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, file, file
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.pid = p.cmd.Process.Pid
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the log has the reason
	}()
	for _, port := range ports {
		if err := p.listens(ctx, loopback(port)); err != nil {
			p.stop()
			return nil, err
		}
	}
	return p, nil
}

// listens waits until the server accepts connections at addr.
func (p *process) listens(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended:\n%s", p.name, p.lines(""))
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on %s:\n%s", p.name, addr, p.lines(""))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lines returns the lines of the server's log that contain a text.
func (p *process) lines(text string) string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	var found strings.Builder
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, text) {
			found.WriteString(line)
		}
	}
	return found.String()
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// startRedis starts a Redis without persistence.
func startRedis(ctx context.Context, dir string) (*process, error) {
	port, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, dir, "redis", []int{port}, "redis-server",
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
}

// startCaddy starts one instance of a server.
func (s *server) startCaddy(ctx context.Context, o options, dir, name string, ports []int, redisAddr string) (*process, error) {
	file := filepath.Join(dir, name+".Caddyfile")
	if err := os.WriteFile(file, []byte(s.caddyfile(ports, redisAddr)), 0o600); err != nil {
		return nil, err
	}
	program := o.diana
	if s.peer {
		program = o.peers
	}
	return startProcess(ctx, dir, name, ports, program, "run", "--config", file, "--adapter", "caddyfile")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
