package redisim

var pubsubCommands = []command{
	{name: "subscribe", arity: -2, flags: noScript | loads | stale | subscribed, run: subscribe},
	{name: "unsubscribe", arity: -1, flags: noScript | loads | stale | subscribed, run: unsubscribe},
	{name: "publish", arity: 3, flags: loads | stale, run: publish},
}

func subscribe(x *execution, args []string) reply {
	x.c.startPushing()
	if x.c.channels == nil {
		x.c.channels = make(map[string]bool)
	}
	r := reply{kind: sequence}
	for _, name := range args[1:] {
		x.c.channels[name] = true
		r.list = append(r.list, reply{kind: push, list: []reply{text("subscribe"), text(name), number(int64(len(x.c.channels)))}})
	}
	return r
}

func unsubscribe(x *execution, args []string) reply {
	r := reply{kind: sequence}
	names := args[1:]
	if len(names) == 0 {
		for name := range x.c.channels {
			names = append(names, name)
		}
	}
	for _, name := range names {
		delete(x.c.channels, name)
		r.list = append(r.list, reply{kind: push, list: []reply{text("unsubscribe"), text(name), number(int64(len(x.c.channels)))}})
	}
	if len(names) == 0 {
		r.list = append(r.list, reply{kind: push, list: []reply{text("unsubscribe"), {kind: null}, number(0)}})
	}
	return r
}

// publish publishes a message, in a Cluster at all nodes. Only the receivers at this node
// are counted.
func publish(x *execution, args []string) reply {
	if c := x.s.cluster; c != nil {
		for _, s := range c.nodes {
			if c.forwards(x.s, s) {
				go s.forward(args[1], args[2])
			}
		}
	}
	return number(x.s.deliver(args[1], args[2]))
}

// forward delivers a message that does not come from a client, when the server is not paused.
func (s *Server) forward(channel, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for generation := s.generation; s.paused != nil; {
		paused := s.paused
		s.mu.Unlock()
		<-paused
		if s.mu.Lock(); s.generation != generation {
			return
		}
	}
	if !s.down {
		s.deliver(channel, message)
	}
}

// deliver sends a message to the subscribers of a channel. s.mu is held.
func (s *Server) deliver(channel, message string) (to int64) {
	for c := range s.clients {
		if c.channels[channel] {
			c.push(reply{kind: push, list: texts("message", channel, message).list}.append(nil, c.resp))
			to++
		}
	}
	return to
}
