package stores

// pairs are the words in which the states of many keys end, such as a meter's
// limit and burst: each pair is kept once in a shard, for as long as a state
// has it. There are as many as there were different rules that the shard's keys
// were last charged under.
type pairs struct {
	recent ending     // the words of last: looked up without going to the list
	last   uint32     // the one that was found last
	list   []keptPair // the first is that of a state of zeros
}

// ending is the two words of a pair. An array of two would not be kept in registers.
type ending struct{ first, second int64 }

type keptPair struct {
	words ending
	uses  int
}

// words are those of a pair.
func (p *pairs) words(id uint32) ending {
	if id == p.last {
		return p.recent
	}
	return p.list[id].words
}

// change returns the number of the pair of words, for a state that had the pair
// was.
func (p *pairs) change(was uint32, words ending) uint32 {
	if p.words(was) == words {
		return was
	}
	id := p.find(words)
	p.use(id)
	p.drop(was)
	return id
}

// find returns the number of a pair, which is new if there is none.
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

func (p *pairs) use(id uint32) {
	if id > 0 {
		p.list[id].uses++
	}
}

func (p *pairs) drop(id uint32) {
	if id > 0 {
		p.list[id].uses--
	}
}
