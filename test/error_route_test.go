package test

import (
	"context"
	"testing"
)

// TestLeavingAnErrorRoute has a client leave while its request waits for a rate limit in
// handle_errors: Caddy has nothing to say about it.
func TestLeavingAnErrorRoute(t *testing.T) {
	s := serve(t, setup{site: "log\nerror 404\nhandle_errors {\nrate_limit {\nzone z {\nrule 1/30m\nmax_wait 1h\n}\n}\nrespond gone 404\n}"})
	s.want(req{}, 404)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.try(req{ctx: ctx})
		left <- err
	}()
	until(t, "the request to wait", func() bool { return waiting() == 1 })
	cancel()
	if err := <-left; err == nil {
		t.Error("the client got an answer")
	}
	if status := s.log.wait(t, "handled request")["status"]; status != 404. {
		t.Errorf("the first request: status %v", status)
	}
	until(t, "the access log", func() bool { return len(s.log.lines(t, "handled request")) == 2 })
	if status := s.log.lines(t, "handled request")[1]["status"]; status != 499. {
		t.Errorf("status %v, want 499", status)
	}
	if n := len(s.log.lines(t, "error handling handler error")); n != 0 {
		t.Errorf("%d lines say that an error was not handled", n)
	}
}
