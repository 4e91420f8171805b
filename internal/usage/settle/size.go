package settle

import (
	"net/http"
	"sync"

	"github.com/dianalimiter/diana/internal/body"
)

// size is how many bytes a body has, as far as it was read: of text, and of pictures and files in base64, of which a
// token of a language model is many more bytes. It reads JSON: what stands where media stand, as data that is no
// text (see media.go), is such a file. All else is text.
type size struct {
	text, media int64 // bytes

	inString, escaped bool
	name              [longestName]byte // the beginning of the string, perhaps a name
	length            int64             // of the string so far
	isMedia           bool              // a value follows, or has begun, that stands where media stand
	data              data              // of that value
}

const (
	bytesPerToken      = 4
	encodedBytesPerOne = 256 // of base64
)

// add counts what follows.
func (s *size) add(p []byte) {
	for _, c := range p {
		switch {
		case !s.inString:
			s.between(c)
		case s.escaped:
			if s.escaped = false; c == '/' {
				s.inside(c)
			} else { // such as the end of a line
				s.text, s.length = s.text+1, s.length+1
			}
		case c == '\\':
			s.escaped = true
			s.text++
		case c == '"':
			s.endString()
			s.text++
		default:
			s.inside(c)
		}
	}
}

// between reads a byte that is in no string.
func (s *size) between(c byte) {
	switch s.text++; c {
	case '"':
		s.inString, s.length, s.data = true, 0, data{}
	case ':':
		s.isMedia = mediaNames[string(s.name[:min(s.length, longestName)])]
	case '}':
		s.isMedia = false
	}
}

// inside reads a byte of a string.
func (s *size) inside(c byte) {
	if s.length < longestName {
		s.name[s.length] = c
	}
	s.length++
	if s.data.begun || s.isMedia && s.length == 1 {
		s.addData(c)
		return
	}
	if s.text++; c == ',' && s.length < longestName && isDataURL(s.name[:s.length]) {
		s.data.begun = true
	}
}

// addData reads a byte of a string that stands where media stand.
func (s *size) addData(c byte) {
	if s.data.begun = true; !isBase64[c] {
		s.endData()
		s.text++
		s.data = data{begun: s.isMedia}
		return
	}
	if s.data.add(c) {
		s.endWindow()
	}
}

func (s *size) endWindow() {
	if s.data.judge() {
		s.media += window
	} else {
		s.text += window
	}
	s.data.next()
}

// endData counts the data that has no whole window: as the one before it.
func (s *size) endData() {
	if s.data.last {
		s.media += s.data.n
	} else {
		s.text += s.data.n
	}
	s.data.n = 0
}

func (s *size) endString() {
	s.endData()
	s.inString, s.data = false, data{}
}

// tokens returns for how many tokens of a language model the body is taken if it has a length; below
// 0: none is known. The rest is counted as if it went on as it ended.
func (s size) tokens(length int64) int64 {
	goesOn := s.data.last
	s.endData()
	if rest := length - s.text - s.media; rest > 0 {
		if goesOn {
			s.media += rest
		} else {
			s.text += rest
		}
	}
	return (s.text+bytesPerToken-1)/bytesPerToken + (s.media+encodedBytesPerOne-1)/encodedBytesPerOne
}

// passed is the size of the body of a request that has passed, as [body.Watched.To]; a transport may still
// read it after the response.
type passed struct {
	mu   sync.Mutex
	size size
}

// Write implements io.Writer.
func (p *passed) Write(piece []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size.add(piece)
	return len(piece), nil
}

// sizeOf returns the size of the body of a request: what has passed, or what was read of it before the
// request was decided.
func sizeOf(r *http.Request, p *passed) (s size) {
	if p != nil {
		p.mu.Lock()
		s = p.size
		p.mu.Unlock()
	}
	if b := body.Of(r); s == (size{}) && b != nil {
		text, _ := b.Bytes()
		s.add(text)
	}
	return s
}

// watch returns what the size of a request's body is counted in from now on; nil: it has none that is
// watched.
func watch(r *http.Request) *passed {
	w, ok := r.Body.(*body.Watched)
	if !ok {
		return nil
	}
	if w.To == nil {
		w.To = new(passed)
	}
	p, _ := w.To.(*passed)
	return p
}
