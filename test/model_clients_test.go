package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dianalimiter/diana/examples/llm-gateway/upstream"
)

// modelClients are client libraries of language models, by the name in docs/clients.md. Each is a
// command that takes the URL of an API, and prints the usage of an answer and of a stream; with
// another argument that of an answer alone.
var modelClients = map[string][]string{
	"openai":            {"node", "bin/clients/openai.mjs"},
	"@anthropic-ai/sdk": {"node", "bin/clients/anthropic.mjs"},
	"ai":                {"node", "bin/clients/ai.mjs"},
	"openai-go":         {"bin/clients/openai-go"},
}

// TestModelClients asks a language model through Caddy with the libraries that applications use. What
// they are told as usage, of an answer and of a stream, is what is charged, to the token. Where
// the limit is used up they wait as they are told, and come through with the first try after that.
func TestModelClients(t *testing.T) {
	if out, err := command(t, ".ci/need", "clients").CombinedOutput(); err != nil {
		t.Fatalf(".ci/need clients: %v\n%s", err, out)
	}
	s := serve(t, setup{site: `
		rate_limit {
			headers openai
			zone budget {
				match path /budget/*
				key {http.request.uri.path.1}
				tokens
				rule 1000000/1h
			}
			zone narrow {
				match path /narrow/*
				key {http.request.uri.path.1}
				tokens
				rule 200/12s fixed_window
			}
			zone tiny {
				match path /tiny/*
				tokens
				rule 5/1m
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		upstream.Handler{}.ServeHTTP(w, r)
		return nil
	})})
	var all sync.WaitGroup
	for name, args := range modelClients {
		id := strings.Trim(strings.ReplaceAll(name, "/", "-"), "@")
		all.Go(func() {
			told := s.runModelClient(args, s.url+"/budget/"+id)
			if len(told) != 2 {
				t.Errorf("%s was told %v, want the usage of an answer and of a stream", name, told)
				return
			}
			used := func() int64 { return 1_000_000 - s.key("GET", "budget", id).Rules[0].Remaining }
			until(t, name+" to be charged", func() bool { return used() == told[0]+told[1] })
		})
		all.Go(func() {
			ready, goOn := s.startModelClient(args, s.url+"/narrow/"+id)
			if !ready {
				return
			}
			s.want(req{method: "POST", path: "/narrow/" + id + "/chat/completions", body: `{"max_tokens": 198, "messages": [{"role": "user", "content": "Hello"}]}`, header: map[string]string{"Content-Type": "application/json"}}, 200)
			until(t, "the tokens to be charged", func() bool { return s.key("GET", "narrow", id).Rules[0].Remaining == 1 })
			goOn()
		})
	}
	for name, args := range modelClients {
		if name == "openai-go" { // which keeps the message from the text of its error
			continue
		}
		all.Go(func() {
			out, err := command(t, append(args[:len(args):len(args)], s.url+"/tiny/"+args[len(args)-1], "once")...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "Request too large for tiny") {
				t.Errorf("%s, which asks for more than is ever admitted: %v\n%s\nwant the error that it was told", name, err, out)
			}
		})
	}
	all.Wait()
	lines, doc := s.log.access(t, 5*len(modelClients)), textOf(t, "docs/clients.md")
	for name := range modelClients {
		id := strings.Trim(strings.ReplaceAll(name, "/", "-"), "@")
		if got := fmt.Sprint(statusesOf(lines, "/narrow/"+id+"/")); got != "[200 429 200]" {
			t.Errorf("%s: %s, want a try that is denied and one that is not", name, got)
		}
		if !strings.Contains(doc, "| `"+name+"` | 2 | 2 |") {
			t.Errorf("docs/clients.md has no tries of %s", name)
		}
	}
}

// startModelClient starts a client that is to ask once, and returns when it is ready. goOn has it
// ask, and returns when it has ended.
func (s *site) startModelClient(args []string, url string) (ready bool, goOn func()) {
	s.Helper()
	cmd := command(s.T, append(args[:len(args):len(args)], url, "once")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		s.Error(err)
		return false, nil
	}
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.Error(err)
		return false, nil
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if said != "ready\n" {
		s.Errorf("%v: %q, %v, want it to be ready", args, said, err)
	}
	return said == "ready\n", func() {
		_, _ = io.WriteString(in, "\n")
		if err := cmd.Wait(); err != nil {
			s.Errorf("%v: %v", args, err)
		}
	}
}

// runModelClient runs a client and returns the usages that it was told.
func (s *site) runModelClient(args []string, more ...string) (told []int64) {
	s.Helper()
	out, err := command(s.T, append(args[:len(args):len(args)], more...)...).CombinedOutput()
	if err != nil {
		s.Errorf("%v %v: %v\n%s", args, more, err, out)
		return nil
	}
	for _, word := range strings.Fields(string(out)) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			s.Errorf("%v: %s", args, out)
		}
		told = append(told, n)
	}
	return told
}
