package limiter

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
)

// TestResetOfAShadowThatCountsApart resets a key of a zone that one handler enforces while another has it in shadow:
// what the shadow has counted is forgotten, too.
func TestResetOfAShadowThatCountsApart(t *testing.T) {
	newZone := func(shadow bool) *config.Zone {
		return &config.Zone{Name: "reset_apart", Shadow: shadow, Rules: []*config.Rule{{Limit: 3, Window: config.Window{Duration: time.Hour}}}}
	}
	r := NewRegistry(zap.NewNop(), nil)
	for _, l := range []*Limiter{newTestLimiter(t, nil, newZone(false)), newTestLimiter(t, nil, newZone(true))} {
		if err := r.Join(l); err != nil {
			t.Fatal(err)
		}
		ask(context.Background(), l, "a", takes(0))
	}
	z := r.Zone("reset_apart")
	counted, err := z.Target([]string{"a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	apart := Target{Key: apartKey(counted.Key), Cost: 1}
	for _, target := range []Target{counted, apart} {
		if used := z.Peek(context.Background(), target).Rules[0].Used; used != 1 {
			t.Errorf("key %s: %d used before the reset, want 1", target.Key, used)
		}
	}
	if err := r.Reset(context.Background(), z, counted.Key); err != nil {
		t.Fatal(err)
	}
	for _, target := range []Target{counted, apart} {
		if used := z.Peek(context.Background(), target).Rules[0].Used; used != 0 {
			t.Errorf("key %s: %d used after the reset, want 0", target.Key, used)
		}
	}
}
