package scan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// BenchmarkScan scans a long string, many numbers, and a stream of events.
func BenchmarkScan(b *testing.B) {
	p, err := scan.NewPaths("usage.total_tokens", "usage.prompt_tokens")
	if err != nil {
		b.Fatal(err)
	}
	event := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	for _, c := range []struct {
		name, body string
		format     scan.Format
	}{
		{"string", `{"text":"` + strings.Repeat("x", 1<<20) + `","usage":{"total_tokens":5}}`, scan.JSON},
		{"numbers", `{"data":[` + strings.Repeat("0.123456,", 100_000) + `1],"usage":{"total_tokens":5}}`, scan.JSON},
		{"events", strings.Repeat(event, 500) + "data: [DONE]\n\n", scan.SSE},
	} {
		for _, size := range []int{1, 32 << 10} {
			b.Run(fmt.Sprintf("%s/%d", c.name, size), func(b *testing.B) {
				b.SetBytes(int64(len(c.body)))
				b.ReportAllocs()
				body := []byte(c.body)
				for b.Loop() {
					s := scan.New(types[c.format], p, nothing{})
					for rest := body; len(rest) > 0; {
						n := min(size, len(rest))
						_, _ = s.Write(rest[:n])
						rest = rest[n:]
					}
				}
			})
		}
	}
}

// BenchmarkLarge scans a response of a gibibyte, and one of a million open brackets, with the usage
// at the end.
func BenchmarkLarge(b *testing.B) {
	p, err := scan.NewPaths("usage.total_tokens")
	if err != nil {
		b.Fatal(err)
	}
	const deep = 1_000_000
	end := `,"usage":{"total_tokens":5}}`
	for name, of := range map[string]struct {
		begin, piece, end string
		times             int
	}{
		"gibibyte": {`{"data":[0`, strings.Repeat(`,{"text":"words and \"more\" words","n":-0.0123456}`, 1000), "]" + end, 1 << 30 / 48_000},
		"depth":    {`{"data":`, strings.Repeat("[", 1000), strings.Repeat("]", deep) + end, deep / 1000},
	} {
		b.Run(name, func(b *testing.B) {
			piece, found := []byte(of.piece), int64(0)
			b.SetBytes(int64(len(of.begin) + of.times*len(piece) + len(of.end)))
			before, most := usage.HeapAlloc(), uint64(0)
			for b.Loop() {
				s := scan.New(types[scan.JSON], p, (*lastNumber)(&found))
				_, _ = s.Write([]byte(of.begin))
				for range of.times {
					_, _ = s.Write(piece)
				}
				most = max(most, usage.HeapAlloc())
				_, _ = s.Write([]byte(of.end))
				if s.End(); found != 5 {
					b.Fatalf("%d tokens, want 5", found)
				}
			}
			b.ReportMetric(float64(max(most, before)-before), "heap-B")
		})
	}
}
