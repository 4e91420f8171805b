package body

import "sync"

// Size is how much text a body has, as far as it was read. Long runs of base64 are pictures and
// files, of which a token of a language model is many more bytes.
type Size struct {
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
func (s *Size) add(p []byte) {
	for _, c := range p {
		if isBase64[c] {
			s.run++
			continue
		}
		s.endRun()
		s.text++
	}
}

func (s *Size) endRun() {
	if s.run > longRun {
		s.base64 += s.run
	} else {
		s.text += s.run
	}
	s.run = 0
}

// Tokens returns for how many tokens of a language model the body is taken if it has a length; below
// 0: none is known. The rest is counted as if the text went on as it ended.
func (s Size) Tokens(length int64) int64 {
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

// Size returns the size of the part read before the request was decided. b may be nil.
func (b *Body) Size() Size {
	if b == nil {
		return Size{}
	}
	if b.size == (Size{}) {
		b.size.add(b.data)
	}
	return b.size
}

// passed is the size that has passed; a transport may still read after the response.
type passed struct {
	sync.Mutex
	size Size
}

// Size returns the size that has passed so far. w may be nil.
func (w *Watched) Size() Size {
	if w == nil || w.passed == nil {
		return Size{}
	}
	w.passed.Lock()
	defer w.passed.Unlock()
	return w.passed.size
}
