package settle

import (
	"net/http"
	"sync"

	"github.com/dianalimiter/diana/internal/body"
)

// size is how much text a body has, as far as it was read. Long runs of base64 are pictures and
// files, of which a token of a language model is many more bytes.
type size struct {
	text, base64 int64 // bytes
	run          int64 // of base64 at the end, which may go on
}

const (
	longRun            = 1024 // bytes of base64 without anything between them that are no text
	bytesPerToken      = 4
	encodedBytesPerOne = 256 // of base64
)

// isBase64 are the bytes of base64, and of base64url.
var isBase64 = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=" {
		is[c] = true
	}
	return is
}()

// add counts what follows.
func (s *size) add(p []byte) {
	for _, c := range p {
		if isBase64[c] {
			s.run++
			continue
		}
		s.endRun()
		s.text++
	}
}

func (s *size) endRun() {
	if s.run > longRun {
		s.base64 += s.run
	} else {
		s.text += s.run
	}
	s.run = 0
}

// tokens returns for how many tokens of a language model the body is taken if it has a length; below
// 0: none is known. The rest is counted as if the text went on as it ended.
func (s size) tokens(length int64) int64 {
	if rest := length - s.text - s.base64 - s.run; rest > 0 {
		if s.run > longRun {
			s.run += rest
		} else {
			s.text += rest
		}
	}
	s.endRun()
	return (s.text+bytesPerToken-1)/bytesPerToken + (s.base64+encodedBytesPerOne-1)/encodedBytesPerOne
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
