package memory

// pairs deduplicates the last two words of the states of many keys, such as the
// limit and burst of a meter. Each pair is stored once per shard while a state
// refers to it. There are as many pairs as there were different rules when the
// shard's keys were last charged.
type pairs struct {
	recent ending     // the words of the pair last, to avoid a lookup
	last   uint32     // the pair that was found last
	list   []keptPair // the first pair is that of a zero state
}

// ending is the two words of a pair. An array of two would not be kept in
// registers.
type ending struct{ first, second int64 }

type keptPair struct {
	words ending
	uses  int
}

// words returns the words of a pair.
func (p *pairs) words(id uint32) ending {
	if id == p.last {
		return p.recent
	}
	return p.list[id].words
}

// change returns the number of the pair with these words, for a state that
// referred to another one, was.
func (p *pairs) change(was uint32, words ending) uint32 {
	id := p.find(words)
	p.retain(id)
	p.release(was)
	return id
}

// find returns the number of a pair, and adds it if necessary.
func (p *pairs) find(words ending) uint32 {
	if p.recent == words {
		return p.last
	}
	if len(p.list) == 0 {
		p.list = append(p.list, keptPair{})
	}
	free := uint32(0)
	for id := range p.list {
		switch {
		case p.list[id].words == words:
			p.last, p.recent = uint32(id), words
			return p.last
		case id > 0 && p.list[id].uses == 0:
			free = uint32(id)
		}
	}
	if free == 0 {
		free = uint32(len(p.list))
		p.list = append(p.list, keptPair{})
	}
	p.list[free] = keptPair{words: words}
	p.last, p.recent = free, words
	return free
}

func (p *pairs) retain(id uint32) {
	if id > 0 {
		p.list[id].uses++
	}
}

func (p *pairs) release(id uint32) {
	if id > 0 {
		p.list[id].uses--
	}
}
