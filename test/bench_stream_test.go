package test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

const (
	streamedEvent  = "data: {\"choices\":[{\"delta\":{\"content\":\"a few words\"}}]}\n\n"
	streamedEvents = 20
)

// BenchmarkStream measures when the first byte of a stream, and each event after it, arrive at a
// client of a real Caddy, with a zone of tokens and with one that does not read responses, by
// turns. An event is written when the client has read the one before.
func BenchmarkStream(b *testing.B) {
	next := make(chan struct{})
	site := handle(b, "*", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", eventStream)
		for range streamedEvents {
			_, _ = w.Write([]byte(streamedEvent))
			_ = http.NewResponseController(w).Flush()
			<-next
		}
		return nil
	})
	tls := certificate(b)
	var urls [2]string
	text := "{\nadmin off\n}\n"
	for i, option := range []string{"", "tokens"} {
		port := redistest.FreePort(b)
		urls[i] = fmt.Sprintf("https://localhost:%d/", port)
		text += fmt.Sprintf("https://:%d {\ntls %s\nrate_limit {\nzone stream%d {\n%s\nrule 1000000000/1m\n}\n}\n%s\n}\n", port, tls, i, option, site)
	}
	adapted, err := adapt(b, text)
	if err != nil {
		b.Fatal(err)
	}
	if err := caddy.Load(adapted, true); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = caddy.Stop() })
	for name, transport := range streamTransports(b) {
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Transport: transport, Timeout: time.Minute}
			var first, chunk [2][]time.Duration
			for n := 0; b.Loop(); n++ {
				for v := range 2 {
					v = (v + n) % 2
					f, c := streamOnce(b, client, urls[v], next)
					first[v], chunk[v] = append(first[v], f), append(chunk[v], c...)
				}
			}
			b.ReportMetric(micros(first[0]), "first-us")
			b.ReportMetric(micros(first[1])-micros(first[0]), "first-later-us")
			b.ReportMetric(micros(chunk[0]), "chunk-us")
			b.ReportMetric(micros(chunk[1])-micros(chunk[0]), "chunk-later-us")
		})
	}
}

func streamTransports(b *testing.B) map[string]http.RoundTripper {
	all := make(map[string]http.RoundTripper)
	insecure := &tls.Config{InsecureSkipVerify: true}
	for name, two := range map[string]bool{"http1": false, "http2": true} {
		t := &http.Transport{TLSClientConfig: insecure.Clone(), Protocols: new(http.Protocols)}
		t.Protocols.SetHTTP1(!two)
		t.Protocols.SetHTTP2(two)
		b.Cleanup(t.CloseIdleConnections)
		all[name] = t
	}
	three := &http3.Transport{TLSClientConfig: insecure.Clone()}
	b.Cleanup(func() { _ = three.Close() })
	all["http3"] = three
	return all
}

// streamOnce reads a stream, and returns when its first event came, and how long each other took.
func streamOnce(b *testing.B, client *http.Client, url string, next chan<- struct{}) (first time.Duration, chunks []time.Duration) {
	begun := time.Now()
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"max_tokens":1}`))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for i := range streamedEvents {
		for range strings.Count(streamedEvent, "\n") {
			if _, err := r.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
		}
		if took := time.Since(begun); i == 0 {
			first = took
		} else {
			chunks = append(chunks, took)
		}
		begun = time.Now()
		next <- struct{}{}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // the connection is used again
		b.Fatal(err)
	}
	return first, chunks
}

// micros returns the median in microseconds.
func micros(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}
