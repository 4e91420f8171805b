package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// patience is the maximum duration of an until step.
const patience = 30 * time.Second

// answer is the part of a response that steps check.
type answer struct {
	status int
	header http.Header
	body   string
	close  func() // closes an upgraded connection
}

// Run runs the steps against the server at url and returns the first difference and
// the number of requests with the expected response.
func Run(client *http.Client, url string, steps []Step) (n int, err error) {
	for _, s := range steps {
		m, err := s.run(client, url)
		n += m
		if err != nil {
			return n, fmt.Errorf("%s: %w", s.Text, err)
		}
	}
	return n, nil
}

func (s *Step) run(client *http.Client, url string) (n int, err error) {
	started := time.Now()
	var last *answer
	switch {
	case s.Until:
		n, last, err = s.runUntil(client, url)
	case s.Together:
		last, err = s.runTogether(client, url)
		n = len(s.Statuses)
	default:
		n, last, err = s.runOneByOne(client, url)
	}
	if err != nil {
		return n, err
	}
	if took := time.Since(started); took < s.Took {
		return n, fmt.Errorf("took %v, want at least %v", took, s.Took)
	}
	return n, s.check(last)
}

func (s *Step) runOneByOne(client *http.Client, url string) (n int, last *answer, err error) {
	for i, want := range s.Statuses {
		if last, err = s.send(client, url); err != nil {
			return n, nil, err
		}
		last.close()
		n++
		if last.status != want {
			return n, nil, fmt.Errorf("request %d: status %d %q, want %d", i+1, last.status, last.body, want)
		}
	}
	return n, last, nil
}

func (s *Step) runUntil(client *http.Client, url string) (n int, last *answer, err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if last, err = s.send(client, url); err != nil {
			return n, nil, err
		}
		last.close()
		n++
		if last.status == s.Statuses[0] {
			return n, last, nil
		}
		if time.Now().After(deadline) {
			return n, nil, fmt.Errorf("status %d for %v, want %d", last.status, patience, s.Statuses[0])
		}
	}
}

func (s *Step) runTogether(client *http.Client, url string) (last *answer, err error) {
	answers := make([]*answer, len(s.Statuses))
	errs := make([]error, len(s.Statuses))
	var wg sync.WaitGroup
	for i := range s.Statuses {
		wg.Go(func() { answers[i], errs[i] = s.send(client, url) })
	}
	wg.Wait()
	for _, a := range answers {
		if a != nil {
			a.close() // only after all responses
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	got, want := make([]int, len(answers)), slices.Clone(s.Statuses)
	for i, a := range answers {
		got[i] = a.status
		if a.status == want[len(want)-1] {
			last = a
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("statuses %v, want %v", got, want)
	}
	return last, nil
}

func (s *Step) send(client *http.Client, url string) (*answer, error) {
	r, err := http.NewRequestWithContext(context.Background(), s.Method, url+s.Target, strings.NewReader(s.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range s.Header {
		r.Header.Set(name, value)
	}
	if s.From != "" {
		r.Header.Set("X-Forwarded-For", s.From)
	}
	if s.Host != "" {
		r.Host = s.Host
	}
	if s.User != "" {
		r.SetBasicAuth(s.User, s.Password)
	}
	resp, err := client.Do(r) //nolint:bodyclose // answer.close does
	if err != nil {
		return nil, err
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, close: func() { _ = resp.Body.Close() }}
	if a.status == http.StatusSwitchingProtocols {
		return a, nil
	}
	defer a.close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a.body = string(body)
	return a, nil
}

// check checks the last response.
func (s *Step) check(a *answer) error {
	retry := a.header.Get("Retry-After")
	switch s.Retry {
	case "":
	case "none":
		if retry != "" {
			return fmt.Errorf("retry-after %q, want none", retry)
		}
	default:
		most, err := strconv.Atoi(s.Retry)
		if err != nil {
			return err
		}
		if n, err := strconv.Atoi(retry); err != nil || n < 1 || n > most || n <= most-10 {
			return fmt.Errorf("retry-after %q, want at most %d seconds and at most 10 less", retry, most)
		}
	}
	for _, text := range s.Has {
		if !strings.Contains(a.body, text) {
			return fmt.Errorf("body %q, want %q in it", a.body, text)
		}
	}
	for name, want := range s.Last {
		got := a.header.Values(name)
		if want == "none" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0] != want {
			return fmt.Errorf("header %s: %q, want %q", name, got, want)
		}
	}
	return nil
}
