package topk

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// hash spreads small numbers over both words.
func hash(i uint64) (hi, lo uint64) { return bits.Mul64(i+1, 0x9e3779b97f4a7c15) }

// mixed is a better hash: both words are pseudorandom.
func mixed(i uint64) (hi, lo uint64) {
	r := rand.NewPCG(i, 7)
	return r.Uint64(), r.Uint64()
}

// TestFewKeysAreExact counts fewer keys than a sketch keeps: all counts are exact.
func TestFewKeysAreExact(t *testing.T) {
	var s Sketch
	now := int64(9) << EpochBits
	for i := range uint64(50) {
		hi, lo := mixed(i)
		for n := range i + 1 {
			now += 1000
			if got := s.Add(hi, lo, now, rand.Uint32(), 1, 0); got != n+1 {
				t.Fatalf("key %d: counted %d, want %d", i, got, n+1)
			}
		}
	}
	top := s.Top(100, now)
	if len(top) != 50 {
		t.Fatalf("%d keys, want 50", len(top))
	}
	for i, c := range top {
		hi, lo := mixed(uint64(49 - i))
		if c.Hi != hi || c.Lo != lo || c.Times != uint64(50-i) {
			t.Errorf("rank %d: %+v, want key %d", i, c, 49-i)
		}
	}
	if got := s.Top(3, now); len(got) != 3 {
		t.Errorf("%d keys, want 3", len(got))
	}
}

// TestFrequentAmongMillions adds twenty frequent keys and ten million keys once each,
// and logs how many of the frequent ones are found.
func TestFrequentAmongMillions(t *testing.T) {
	var s Sketch
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const distinct = 10_000_000
	now := func(i uint64) int64 { return int64(i) * 5 } // within a minute
	for i := range uint64(distinct) {
		if i%50 == 0 { // the frequent keys are 2 % of all, 0.1 % each
			hi, lo := mixed(r.Uint64N(20))
			s.Add(hi, lo, now(i), rand.Uint32(), 1, 0)
		}
		hi, lo := hash(i<<20 | 1<<60)
		s.Add(hi, lo, now(i), rand.Uint32(), 1, 0)
	}
	found := 0
	for _, c := range s.Top(100, now(distinct)) {
		for i := range uint64(20) {
			if hi, lo := mixed(i); c.Hi == hi && c.Lo == lo {
				found++
			}
		}
	}
	t.Logf("%d of 20 found", found)
	if size := unsafe.Sizeof(s); size > 11<<10 {
		t.Errorf("a sketch has %d bytes", size)
	}
}

// TestHeavyKeysAreFound adds keys that are each a large part of all: none is
// missing.
func TestHeavyKeysAreFound(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var s Sketch
	for i := range uint64(2_000_000) {
		k := 1000 + i // added once
		if i%3 == 0 {
			k = r.Uint64N(20) // 1.7 % each
		}
		hi, lo := mixed(k)
		s.Add(hi, lo, int64(i)*20, rand.Uint32(), 1, 0)
	}
	top := s.Top(100, 40_000_000)
	for i := range uint64(20) {
		hi, lo := mixed(i)
		found := false
		for _, c := range top[:min(20, len(top))] {
			found = found || c.Hi == hi && c.Lo == lo
		}
		if !found {
			t.Errorf("key %d is missing", i)
		}
	}
}

// TestCountsFade checks that counts are halved each epoch.
func TestCountsFade(t *testing.T) {
	var s Sketch
	hi, lo := mixed(1)
	at := func(epoch int64) int64 { return epoch << EpochBits }
	for range 64 {
		s.Add(hi, lo, at(5), rand.Uint32(), 1, 0)
	}
	for _, epoch := range []int64{5, 0} {
		if top := s.Top(1, at(epoch)); top[0].Times != 64 {
			t.Errorf("epoch %d: %d, want 64", epoch, top[0].Times)
		}
	}
	if n := s.Add(hi, lo, at(7), rand.Uint32(), 1, 0); n != 17 {
		t.Errorf("two epochs later: %d, want 17", n)
	}
	if n := s.Add(hi, lo, at(6), rand.Uint32(), 1, 0); n != 18 { // the clock was set back
		t.Errorf("an epoch back: %d, want 18", n)
	}
	if top := s.Top(1, at(100)); len(top) != 0 {
		t.Errorf("long after: %v, want none", top)
	}
}

// TestFastKeysAreSampled adds keys at high rates: the counts are estimates. At lower
// rates they are exact again.
func TestFastKeysAreSampled(t *testing.T) {
	var s Sketch
	now := int64(1) << 40
	add := func(key uint64, n int, gap int64) {
		hi, lo := mixed(key)
		for range n {
			now += gap
			s.Add(hi, lo, now, rand.Uint32(), 1, 0)
		}
	}
	times := func(key uint64) uint64 {
		hi, lo := mixed(key)
		for _, c := range s.Top(Kept, now) {
			if c.Hi == hi && c.Lo == lo {
				return c.Times
			}
		}
		return 0
	}
	add(1, 100_000, 10)
	if n := times(1); n < 90_000 || n > 110_000 || s.skip.Load() == 0 {
		t.Errorf("100000 within a second: count %d, skip %d", n, s.skip.Load())
	}
	add(2, 3000, 1000)
	if s.skip.Load() != 0 {
		t.Error("sampled at a thousand a second, want exact counts")
	}
	before := times(3)
	add(3, 500, 1000)
	if n := times(3) - before; n != 500 {
		t.Errorf("500 at a thousand a second: count %d", n)
	}
}

// TestConcurrentUse adds and reads from several goroutines.
func TestConcurrentUse(t *testing.T) {
	var s Sketch
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(20_000) {
				hi, lo := mixed((i * (g + 1)) % 300)
				s.Add(hi, lo, int64(i)*500, rand.Uint32(), 1, 0)
				if i%1000 == 0 {
					s.Top(10, 0)
				}
			}
		})
	}
	wg.Wait()
	if top := s.Top(Kept, 0); len(top) == 0 {
		t.Error("nothing was counted")
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([][2]uint64, 1<<16)
	for i := range keys {
		keys[i][0], keys[i][1] = mixed(uint64(i))
	}
	const now = 1 << 40 // constant: the highest rate
	b.Run("one key", func(b *testing.B) {
		var s Sketch
		for b.Loop() {
			s.Add(keys[0][0], keys[0][1], now, rand.Uint32(), 1, 0)
		}
	})
	b.Run("65536 keys", func(b *testing.B) {
		var s Sketch
		for i := 0; b.Loop(); i++ {
			k := &keys[i&(1<<16-1)]
			s.Add(k[0], k[1], now, rand.Uint32(), 1, 0)
		}
	})
	b.Run("65536 keys parallel", func(b *testing.B) {
		var s Sketch
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				k := &keys[i&(1<<16-1)]
				s.Add(k[0], k[1], now, rand.Uint32(), 1, 0)
			}
		})
	})
}
