package topk

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// hash spreads small numbers as the keys' hash does.
func hash(i uint64) (hi, lo uint64) { return bits.Mul64(i+1, 0x9e3779b97f4a7c15) }

// mixed is a better one: both words look random.
func mixed(i uint64) (hi, lo uint64) {
	r := rand.NewPCG(i, 7)
	return r.Uint64(), r.Uint64()
}

func TestFewKeysAreExact(t *testing.T) {
	var s Sketch
	for i := range uint64(50) {
		hi, lo := mixed(i)
		for n := range i + 1 {
			if got := s.Add(hi, lo, 9); uint64(got) != n+1 {
				t.Fatalf("key %d: counted %d, want %d", i, got, n+1)
			}
		}
	}
	top := s.Top(100, 9)
	if len(top) != 50 {
		t.Fatalf("%d keys, want 50", len(top))
	}
	for i, c := range top {
		hi, lo := mixed(uint64(49 - i))
		if c.Hi != hi || c.Lo != lo || c.Times != uint32(50-i) {
			t.Errorf("place %d: %+v, want key %d", i, c, 49-i)
		}
	}
	if got := s.Top(3, 9); len(got) != 3 {
		t.Errorf("%d keys, want 3", len(got))
	}
}

// TestBusyAmongMillions hides twenty busy keys among ten million that come once.
func TestBusyAmongMillions(t *testing.T) {
	var s Sketch
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const distinct = 10_000_000
	for i := range uint64(distinct) {
		if i%50 == 0 { // the busy ones are 2 % of all, 0.1 % each
			hi, lo := mixed(r.Uint64N(20))
			s.Add(hi, lo, 1)
		}
		hi, lo := hash(i<<20 | 1<<60)
		s.Add(hi, lo, 1)
	}
	found := 0
	for _, c := range s.Top(100, 1) {
		for i := range uint64(20) {
			if hi, lo := mixed(i); c.Hi == hi && c.Lo == lo {
				found++
			}
		}
	}
	t.Logf("%d of 20 found", found)
	if size := unsafe.Sizeof(s); size > 8<<10 {
		t.Errorf("a sketch has %d bytes", size)
	}
}

// TestHeavyKeysAreFound: what makes up more than its share is never missing.
func TestHeavyKeysAreFound(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var s Sketch
	for i := range uint64(2_000_000) {
		k := 1000 + i // comes once
		if i%3 == 0 {
			k = r.Uint64N(20) // 1.7 % each
		}
		hi, lo := mixed(k)
		s.Add(hi, lo, 1)
	}
	top := s.Top(100, 1)
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

func TestCountsFade(t *testing.T) {
	var s Sketch
	hi, lo := mixed(1)
	for range 64 {
		s.Add(hi, lo, 5)
	}
	for epoch, want := range map[uint32]uint32{5: 64, 0: 64} {
		if top := s.Top(1, epoch); top[0].Times != want {
			t.Errorf("epoch %d: %d, want %d", epoch, top[0].Times, want)
		}
	}
	if n := s.Add(hi, lo, 7); n != 17 {
		t.Errorf("two epochs later: %d, want 17", n)
	}
	if n := s.Add(hi, lo, 6); n != 18 { // a clock that went back
		t.Errorf("an epoch back: %d, want 18", n)
	}
	if top := s.Top(1, 100); len(top) != 0 {
		t.Errorf("long after: %v, want none", top)
	}
}

func TestConcurrentUse(t *testing.T) {
	var s Sketch
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			for i := range uint64(20_000) {
				hi, lo := mixed((i * (g + 1)) % 300)
				s.Add(hi, lo, uint32(1+i/10_000))
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
	b.Run("one key", func(b *testing.B) {
		var s Sketch
		for b.Loop() {
			s.Add(keys[0][0], keys[0][1], 1)
		}
	})
	b.Run("65536 keys", func(b *testing.B) {
		var s Sketch
		for i := 0; b.Loop(); i++ {
			k := &keys[i&(1<<16-1)]
			s.Add(k[0], k[1], 1)
		}
	})
	b.Run("65536 keys parallel", func(b *testing.B) {
		var s Sketch
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				k := &keys[i&(1<<16-1)]
				s.Add(k[0], k[1], 1)
			}
		})
	})
}
