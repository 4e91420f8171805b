package inprocess

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/dianalimiter/diana/internal/usage/scan"
)

// BenchmarkPeersOfScan finds the usage at the end of a response of a megabyte. The peers have it in
// memory as a whole; the scanner gets 32 KiB at a time, as reverse_proxy copies it, and keeps none of it.
func BenchmarkPeersOfScan(b *testing.B) {
	const chunk = 32 << 10
	text := `{"choices":[{"message":{"content":"` + strings.Repeat("words and \\\"more\\\" words, ", 40_000) + `"}}],"usage":{"total_tokens":5}}`
	numbers := `{"data":[{"embedding":[` + strings.Repeat("-0.0123456,", 100_000) + `1]}],"usage":{"total_tokens":5}}`
	for name, body := range map[string]string{"text": text, "numbers": numbers} {
		all := []byte(body)
		find := map[string]func() int64{
			"diana": func() (tokens int64) {
				paths, err := scan.NewPaths("usage.total_tokens")
				if err != nil {
					b.Fatal(err)
				}
				s := scan.New("application/json", paths, (*lastNumber)(&tokens))
				for rest := all; len(rest) > 0; {
					n := min(chunk, len(rest))
					_, _ = s.Write(rest[:n])
					rest = rest[n:]
				}
				return tokens
			},
			"encoding-json": func() int64 {
				var v struct {
					Usage struct {
						Total int64 `json:"total_tokens"`
					} `json:"usage"`
				}
				if err := json.Unmarshal(all, &v); err != nil {
					b.Fatal(err)
				}
				return v.Usage.Total
			},
			"gjson": func() int64 { return gjson.GetBytes(all, "usage.total_tokens").Int() },
		}
		for peer, find := range find {
			b.Run(name+"/"+peer, func(b *testing.B) {
				b.SetBytes(int64(len(all)))
				b.ReportAllocs()
				for b.Loop() {
					if n := find(); n != 5 {
						b.Fatalf("%d tokens, want 5", n)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/byte")
			})
		}
	}
}

// lastNumber is the number that was found last.
type lastNumber int64

func (l *lastNumber) Found(_ int, v scan.Value) { *l = lastNumber(v.Amount.Units) }
func (*lastNumber) EndText(bool)                {}
