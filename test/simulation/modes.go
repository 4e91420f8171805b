package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mode takes an event that tells a change of mode.
func (w *world) mode(in *instance, process string, up bool, data map[string]any) {
	o := w.oracle
	if in.isDead(process) {
		return
	}
	w.event("%s: store %v%s up: %v %v", in.name, data["store"], nodeOf(data), up, data["error"])
	w.coverage.mode(in.name, up)
	o.mu.Lock()
	defer o.mu.Unlock()
	id := fmt.Sprint(process, " ", data["store"], nodeOf(data))
	was, known := o.up[id]
	o.checked["modes"]++
	if known && was == up || !known && up {
		o.violateLocked("a change of mode is told once", fmt.Sprintf("%s: up %v follows up %v", id, up, up), nil)
	}
	o.up[id] = up
	if up {
		w.isUp()
		o.comebacks = append(o.comebacks, comeback{in.name, o.went[id], w.now()})
	} else {
		o.went[id] = w.now()
		o.stalled(id, fmt.Sprint(data["error"]))
	}
}

// someFor is how long checks have to fail, again and again, until that is told though most do not.
const someFor = 2 * time.Second

// stalled takes a change of mode that has to have another reason than that one server stalls, if it does not do so
// again and again while one check in ten fails because of that. o.mu is held.
func (o *oracle) stalled(id, why string) {
	now := o.w.now()
	away := o.touches(now, now, isAway)
	if strings.Contains(why, "and some checks fail") && len(away) == 1 && now-away[0].from >= someFor {
		return
	}
	if len(away) <= 1 && !slices.ContainsFunc(away, func(s *span) bool { return s.what != "stall" }) {
		o.violateLocked("a stall is no outage", id+" went away", nil)
	}
}

// whenUp sets what is done when an instance tells that a store is up.
func (w *world) whenUp(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up = do
}

func (w *world) isUp() {
	w.mu.Lock()
	do := w.up
	w.mu.Unlock()
	if do != nil {
		do()
	}
}

// nodeOf returns the node of a Cluster that an event is about, after a space.
func nodeOf(data map[string]any) string {
	if node, ok := data["node"].(string); ok {
		return " " + node
	}
	return ""
}
