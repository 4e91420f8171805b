package key

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// networks returns the i-th of many networks, of lengths from 12 to 28 bits, with one IPv6
// network among eight.
func network(i int) string {
	n := uint32(i) * 2654435761
	if i%8 == 7 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 40+i%16).String()
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 12+i%17).Masked().String()
}

// BenchmarkIndex finds the override of an address among networks, and reports how long they
// took to load, and their memory.
func BenchmarkIndex(b *testing.B) {
	plan, err := NewPlan([]string{"{http.request.header.A}"}, func(s string) string { return s }, "", "", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	h := NewHasher("s")
	for _, n := range []int{0, 1, 1000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begun := time.Now()
			x := new(Index[int])
			for i := range n {
				p, err := plan.Pattern([]string{network(i)})
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := x.Add(p, h, i); err != nil {
					b.Fatal(err)
				}
			}
			load := time.Since(begun)
			runtime.GC()
			runtime.ReadMemStats(&after)
			var keys [64]Encoded
			for i := range keys {
				keys[i].b = append(keys[i].b, keyOfParts)
				keys[i].b = plan.appendValue(keys[i].b, fmt.Sprintf("%d.%d.3.4", i*37%223+1, i*91%255), &keys[i].group)
				keys[i].ends[0] = len(keys[i].b)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				k := &keys[i%len(keys)]
				x.Find(k, h.Hash(k.b))
			}
			b.ReportMetric(load.Seconds()*1e3, "load-ms")
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/1e6, "MB")
			runtime.KeepAlive(x)
		})
	}
}
