// Package redisim is a small Redis server for simulations: it serves connections of any
// kind, takes the time from a function, runs real Lua scripts, and fails on demand as a
// redis-server, a replica, a Cluster and a Sentinel fail.
//
// Its replies are those of Redis 7.0, byte for byte, errors included. Nothing in it waits
// in a way that stops a testing/synctest bubble.
package redisim

import (
	"cmp"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are the settings of a Server.
type Options struct {
	// Clock is what TIME and times to live follow. Default: time.Now.
	Clock func() time.Time

	// Address is the server's host:port, as other servers and clients see it.
	Address string

	// Password is that of the default user. Default: none is required.
	Password string

	// Policy is the maxmemory-policy that INFO reports. Default: noeviction.
	Policy string

	// Version is the version that INFO and scripts report. Default: 7.0.15.
	Version string
}

// Server is one simulated redis-server. All methods may be called at any time. In a
// synctest bubble, the server has to be created in the bubble.
type Server struct {
	o Options

	// turn is held by the connection whose command is executed, also while that is slow
	// or the server is paused. A channel is waited for durably, a mutex is not.
	turn chan struct{}

	mu sync.Mutex // guards what follows; never held while waiting
	state
	keys     keyspace
	lua      *machine
	commands uint64
	master   *link   // nil: it is a master itself
	replicas []*link // that it is the master of

	cluster   *Cluster   // nil: it is no node of one
	sentinels *Sentinels // nil: it is no Sentinel
}

// state is what a server does with commands, besides executing them.
type state struct {
	generation int // how often the server was killed
	down       bool
	paused     chan struct{} // closed by Resume; nil: not paused
	slow       time.Duration
	offset     time.Duration // of the clock
	oom        bool
	readOnly   bool
	loading    bool
	busy       bool
	strange    int    // calls of scripts since they are answered strangely; 0: they are not
	refused    string // the error of every write; empty: none
	masterDown bool
	clients    map[*client]struct{}
	denied     map[string]bool // commands that the user may not run
	nextID     int64
}

// New returns a server that is running and holds no keys.
func New(o Options) *Server {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Policy = cmp.Or(o.Policy, "noeviction")
	o.Version = cmp.Or(o.Version, "7.0.15")
	s := &Server{o: o, turn: make(chan struct{}, 1)}
	s.clients = make(map[*client]struct{})
	s.keys.clear()
	s.lua = newMachine(s)
	return s
}

// Address returns the address in the server's options.
func (s *Server) Address() string { return s.o.Address }

// now returns the server's time. s.mu is held.
func (s *Server) now() time.Time { return s.o.Clock().Add(s.offset) }

// ms returns the server's time in milliseconds, as times to live are kept. s.mu is held.
func (s *Server) ms() int64 { return s.now().UnixMilli() }

// SetClockOffset sets the server's clock ahead of that in its options: TIME, and when keys
// expire. What has expired until then is gone, though the clock may be set back.
func (s *Server) SetClockOffset(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys.purge(s.ms())
	s.offset = d
}

// Pause stops the server as SIGSTOP does: it executes nothing and answers nothing until
// Resume. Connections stay, and what is sent meanwhile is executed afterwards.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil && !s.down {
		s.paused = make(chan struct{})
		s.reached(false)
	}
}

// Resume ends Pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resume()
}

func (s *Server) resume() {
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
		s.reached(true)
	}
}

// reached tells the Cluster whether the server can be reached.
func (s *Server) reached(is bool) {
	if s.cluster != nil {
		s.cluster.reached(s, is)
	}
}

// Slow makes each command take d. 0: none.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// Stall keeps the server busy for d, as a slow command of another program does, and returns
// afterwards.
func (s *Server) Stall(d time.Duration) {
	s.turn <- struct{}{}
	defer s.leave()
	time.Sleep(d)
}

// Kill ends the server as SIGKILL does: all connections are closed, and new ones are
// closed at once, until Start.
func (s *Server) Kill() {
	s.mu.Lock()
	s.catchUp()
	s.lose()
	s.generation++
	s.down = true
	s.resume()
	s.reached(false)
	closing := s.clients
	s.clients = make(map[*client]struct{})
	s.mu.Unlock()
	for c := range closing {
		_ = c.conn.Close()
	}
}

// Start starts the server again after Kill. Scripts and subscriptions are gone; keys are
// kept if keep is set, and those whose time has come meanwhile expire. Its replicas take
// over what it holds then, and a replica what its master holds.
func (s *Server) Start(keep bool) {
	s.mu.Lock()
	if !s.down {
		s.mu.Unlock()
		return
	}
	s.down = false
	s.reached(true)
	s.lua.flush()
	if !keep {
		s.keys.clear()
	}
	links := slices.Clone(s.replicas)
	if s.master != nil {
		links = append(links, s.master)
	}
	s.mu.Unlock()
	for _, l := range links {
		l.sync()
	}
}

// Running says whether the server is not killed.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.down
}

// Flush deletes all keys, in replicas as well.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.keys.values {
		s.delete(k)
	}
}

// delete deletes a key. s.mu is held.
func (s *Server) delete(key string) {
	s.keys.remove(key)
	s.replicate(key)
}

// FlushScripts forgets all scripts, as SCRIPT FLUSH does.
func (s *Server) FlushScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lua.flush()
}

// Evict deletes up to n keys, chosen by r, as Redis does when its memory is full and its
// policy allows. It returns their names.
func (s *Server) Evict(r *rand.Rand, n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.keys.names(s.ms())
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:min(n, len(names))]
	for _, k := range names {
		s.delete(k)
	}
	return names
}

// SetOOM makes the server refuse what needs memory, or no longer.
func (s *Server) SetOOM(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oom = on
}

// SetReadOnly makes the server refuse writes as a replica does, or no longer.
func (s *Server) SetReadOnly(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readOnly = on
}

// Loading makes the server refuse commands as one that reads its data after a start, or no
// longer.
func (s *Server) Loading(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loading = on
}

// RefuseWrites makes the server refuse every write with an error, such as MISCONF or
// NOREPLICAS with Redis' text. Empty: it refuses none.
func (s *Server) RefuseWrites(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = text
}

// MasterDown makes the server refuse commands as a replica that has lost its master and must
// not serve old data, or no longer.
func (s *Server) MasterDown(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.masterDown = on
}

// Busy makes the server refuse commands as one that runs a script for too long, or no
// longer.
func (s *Server) Busy(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = on
}

// Strange makes the server answer calls of scripts as a proxy in trouble may, in words that no client knows, or no
// longer: of three it runs one, one it does not run, and of one that it has run it says that it failed.
func (s *Server) Strange(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strange = 0; on {
		s.strange = 1
	}
}

// Deny takes the right to run these commands away from the user. Without commands, all
// rights are given back.
func (s *Server) Deny(commands ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = make(map[string]bool)
	for _, c := range commands {
		s.denied[strings.ToLower(c)] = true
	}
}

// Keys returns the values of all keys.
func (s *Server) Keys() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUp()
	now, all := s.ms(), make(map[string]string)
	for k, v := range s.keys.values {
		if !v.expired(now) {
			all[k] = string(v.data)
		}
	}
	return all
}

// TTLs returns the times to live of all keys, -1 for those that have none.
func (s *Server) TTLs() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUp()
	now, all := s.ms(), make(map[string]time.Duration)
	for k, v := range s.keys.values {
		switch {
		case v.expired(now):
		case v.expires == 0:
			all[k] = -1
		default:
			all[k] = time.Duration(v.expires-now) * time.Millisecond
		}
	}
	return all
}

// Commands returns how many commands were executed, without those of scripts.
func (s *Server) Commands() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// enter waits until the server is free and not paused, and takes it for a client. It
// returns false if the server was killed.
func (s *Server) enter(c *client) bool {
	s.turn <- struct{}{}
	if !s.runs(c) {
		<-s.turn
		return false
	}
	return true
}

// runs waits while the server is paused. It returns false if it was killed since the client
// connected.
func (s *Server) runs(c *client) bool {
	for {
		s.mu.Lock()
		paused, dead := s.paused, s.generation != c.generation
		s.mu.Unlock()
		switch {
		case dead:
			return false
		case paused == nil:
			return true
		}
		<-paused
	}
}

// leave gives the server free.
func (s *Server) leave() { <-s.turn }

// execute executes a command of a client that has entered, and appends the reply to out.
func (s *Server) execute(c *client, args []string, out []byte) ([]byte, bool) {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow / 2)
		s.runs(c)
	}
	s.mu.Lock()
	alive := s.generation == c.generation
	if alive {
		s.commands++
		s.catchUp()
		out = s.dispatch(c, args).append(out, c.resp)
	}
	s.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow - slow/2)
		alive = s.runs(c) && alive
	}
	return out, alive
}

// Serve serves one connection until it is closed.
func (s *Server) Serve(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		return
	}
	s.nextID++
	c := newClient(s, conn, s.nextID, s.generation)
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	c.loop()
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
}

// Disguise makes up to n keys, chosen by r, hold values of another type, except those whose
// name has a part. The function that it returns gives them their values back.
func (s *Server) Disguise(r *rand.Rand, n int, except string) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.DeleteFunc(s.keys.names(s.ms()), func(k string) bool { return strings.Contains(k, except) })
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	kept := make(map[string]*value)
	for _, k := range names[:min(n, len(names))] {
		kept[k] = s.keys.values[k]
		s.keys.values[k] = &value{isList: true, list: []string{"other"}}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for k, v := range kept {
			if now := s.keys.values[k]; now != nil && now.isList {
				s.keys.values[k] = v
			}
		}
	}
}
