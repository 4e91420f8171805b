package redisim

import (
	"slices"
	"sync"
	"time"
)

// link is the replication from one server to another.
type link struct {
	from, to *Server
	lag      time.Duration

	mu      sync.Mutex // may be locked while a server's mutex is held
	ready   bool       // the replica has taken over what its master held
	pending []effect   // in the order of their time
}

// effect is the effect of a write: a key's value, nil if it was deleted.
type effect struct {
	due   time.Time // on the clock of the simulation
	key   string
	value *value
}

// ReplicateTo makes another server a replica of this one: it holds what this one holds now,
// is read-only, and takes over each write after lag, until Promote. What was not taken over
// when this server is killed is lost.
func (s *Server) ReplicateTo(replica *Server, lag time.Duration) {
	replica.follow(nil)
	l := &link{from: s, to: replica, lag: lag}
	replica.mu.Lock()
	replica.readOnly, replica.master = true, l
	replica.mu.Unlock()
	l.sync()
}

// sync copies all keys to the replica, as a replica that connects takes them over.
func (l *link) sync() {
	l.from.mu.Lock()
	if !slices.Contains(l.from.replicas, l) {
		l.from.replicas = append(l.from.replicas, l)
	}
	l.mu.Lock()
	l.ready, l.pending = false, nil
	l.mu.Unlock()
	all := l.from.keys.clone()
	l.from.mu.Unlock()

	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	if l.to.master == l {
		l.to.keys = all
		l.mu.Lock()
		l.ready = true
		l.mu.Unlock()
	}
}

// follow ends the replication to this server, if it is a replica.
func (s *Server) follow(l *link) {
	s.mu.Lock()
	old := s.master
	s.master = l
	s.mu.Unlock()
	if old != nil {
		old.from.mu.Lock()
		old.from.replicas = slices.DeleteFunc(old.from.replicas, func(x *link) bool { return x == old })
		old.from.mu.Unlock()
	}
}

// Promote makes a replica a master, with the writes that it has taken over until now.
func (s *Server) Promote() {
	s.mu.Lock()
	s.catchUp()
	s.readOnly = false
	s.mu.Unlock()
	s.follow(nil)
}

// Replica says whether the server is a replica.
func (s *Server) Replica() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master != nil
}

// replicate sends the new value of a key to the replicas. s.mu is held.
func (s *Server) replicate(key string) {
	for _, l := range s.replicas {
		e := effect{s.o.Clock().Add(l.lag), key, s.keys.values[key].clone()}
		l.mu.Lock()
		l.pending = append(l.pending, e)
		l.mu.Unlock()
	}
}

// catchUp takes over the writes whose time has come. s.mu is held.
func (s *Server) catchUp() {
	l := s.master
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready {
		return
	}
	now, n := s.o.Clock(), 0
	for ; n < len(l.pending) && !l.pending[n].due.After(now); n++ {
		if e := l.pending[n]; e.value == nil {
			s.keys.remove(e.key)
		} else {
			s.keys.values[e.key] = e.value
		}
	}
	l.pending = slices.Delete(l.pending, 0, n)
}

// lose forgets what has not reached the replicas. s.mu is held.
func (s *Server) lose() {
	now := s.o.Clock()
	for _, l := range s.replicas {
		l.mu.Lock()
		i := slices.IndexFunc(l.pending, func(e effect) bool { return e.due.After(now) })
		if i >= 0 {
			l.pending = slices.Delete(l.pending, i, len(l.pending))
		}
		l.mu.Unlock()
	}
}
