package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Read summarizes the lines that were read.
type Read struct {
	Lines  int64    `json:"lines"`                  // of requests
	Unread int64    `json:"unread"`                 // that have none of the formats
	Other  int64    `json:"other,omitempty"`        // of other loggers of Caddy
	Late   int64    `json:"late,omitempty"`         // that came later than they can be put in order
	First  []string `json:"first_unread,omitempty"` // some of those unread
	Cut    []string `json:"cut,omitempty"`          // compressed files whose end is missing

	from, to int64
}

// Logs are files of logs.
type Logs struct {
	Paths []string             // "-" is standard input
	Stop  func() bool          // ends reading; nil: never
	Told  func(part, of int64) // told about once a second how much of the files was read, in bytes; nil: nobody
	Each  func(l *Line) error  // receives the requests, in the order in which they began
	Wants func(l *Line) bool   // leaves out requests; nil: none
}

const (
	reorder   = 10 * time.Minute // within which lines are put in order
	reordered = 32 << 10         // lines that wait for others at most, usually of a kilobyte each
	waiting   = 64 << 20         // bytes of them at most: clients choose how long a line is
	longest   = 2 << 20          // bytes of a line that are read
	quotes    = 3                // lines without a format that are quoted
	batch     = 512              // lines that are handed over at once
	batchSize = 1 << 20          // bytes of them, and one line more
)

// Read reads the logs.
func (g *Logs) Read() (read Read, err error) {
	files, err := g.openAll()
	defer func() {
		for _, f := range files {
			f.stop()
		}
	}()
	if err != nil {
		return read, err
	}
	lines := order{read: &read, each: g.Each}
	told := time.Now()
	for n := 0; ; n++ {
		f := earliest(files)
		if f == nil || g.Stop != nil && n%batch == 0 && g.Stop() {
			break
		}
		if f.waits {
			f.start(g.Wants)
			continue
		}
		l := f.lines[0]
		f.lines = f.lines[1:]
		if err := lines.add(l); err != nil {
			return read, err
		}
		if g.Told != nil && n%batch == 0 && time.Since(told) >= time.Second {
			told = time.Now()
			g.tell(files)
		}
	}
	for len(lines.waits) > 0 {
		if err := lines.release(); err != nil {
			return read, err
		}
	}
	for _, f := range files {
		f.stop()
		read.Unread += f.read.Unread
		read.Other += f.read.Other
		read.Cut = append(read.Cut, f.read.Cut...)
		read.First = append(read.First, f.read.First[:min(len(f.read.First), quotes-len(read.First))]...)
		err = errors.Join(err, f.err)
	}
	return read, err
}

// openAll opens the logs. After an error it returns the logs opened so far.
func (g *Logs) openAll() (files []*file, err error) {
	for i, path := range g.Paths {
		if path == "-" && slices.Contains(g.Paths[:i], path) {
			return files, errors.New("- is given twice: want stdin once")
		}
		f, err := g.open(path)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// tell tells how much of the logs was read.
func (g *Logs) tell(files []*file) {
	var part, size int64
	for _, f := range files {
		part += f.at.n.Load()
		size += f.size
	}
	g.Told(part, size)
}

// order puts lines in the order in which their requests began.
type order struct {
	waits queue[*Line]
	held  int // bytes of the lines that wait
	read  *Read
	each  func(*Line) error
}

// add adds a line, and releases lines that no later line can precede, or that are too many.
func (o *order) add(l *Line) error {
	heap.Push(&o.waits, l)
	o.held += l.size
	for len(o.waits) > 0 && (o.waits[0].Begin <= l.End-reorder.Microseconds() || len(o.waits) > reordered || o.held > waiting) {
		if err := o.release(); err != nil {
			return err
		}
	}
	return nil
}

// release hands over the first line.
func (o *order) release() error {
	l := heap.Pop(&o.waits).(*Line)
	o.held -= l.size
	if l.Begin < o.read.to {
		o.read.Late++
	}
	o.read.from, o.read.to = min(cmp.Or(o.read.from, l.Begin), l.Begin), max(o.read.to, l.Begin)
	o.read.Lines++
	return o.each(l)
}

// Span returns when the first and the last request began.
func (r *Read) Span() (from, to time.Time) {
	return time.UnixMicro(r.from).UTC(), time.UnixMicro(r.to).UTC()
}

// earliest returns the file whose next line was written first; nil: there are no more.
func earliest(files []*file) (first *file) {
	for _, f := range files {
		if f.next() && (first == nil || f.lines[0].End < first.lines[0].End) {
			first = f
		}
	}
	return first
}

// file is a log that is read by a goroutine of its own. A regular file waits until its first line is
// the earliest, so that few of any number of rotated files have buffers and lines at once.
type file struct {
	path  string
	in    *os.File
	size  int64 // bytes; 0: unknown
	waits bool  // whether it is not read yet; lines has its first one, or one of the time 0
	at    counter
	lines []*Line
	more  chan []*Line
	done  chan struct{} // closed when nobody wants more
	ended chan struct{} // closed when the goroutine has ended
	read  Read          // by it
	err   error         // of it
}

// open opens a file. If it is renamed afterwards, reading goes on.
func (g *Logs) open(path string) (*file, error) {
	f := &file{path: path, in: os.Stdin, more: make(chan []*Line, 2), done: make(chan struct{}), ended: make(chan struct{})}
	if path != "-" {
		var err error
		if f.in, err = os.Open(path); err != nil { //nolint:gosec // the user's own file
			return nil, err
		}
	}
	f.at.Reader = f.in
	if info, err := f.in.Stat(); path != "-" && err == nil && info.Mode().IsRegular() {
		f.size = info.Size()
		if err := f.peek(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.in.Close())
		}
		return f, nil
	}
	f.start(g.Wants)
	return f, nil
}

// peek looks for a request among the first lines, and then lets the file wait. Errors in its text are
// found when it is read.
func (f *file) peek() error {
	text, err := decompressed(f.path, &f.at)
	if err != nil {
		return err
	}
	first, lines := new(Line), bufio.NewReaderSize(text, 1<<16)
	for n := 0; n < batch && err == nil; n++ {
		var raw []byte
		if raw, err = readLine(lines); first.parse(string(raw)) == access {
			break
		}
		first = new(Line)
	}
	f.at.n.Store(0)
	f.waits, f.lines = true, []*Line{first}
	_, err = f.in.Seek(0, io.SeekStart)
	return err
}

// start reads the file in a goroutine.
func (f *file) start(wants func(*Line) bool) {
	f.waits, f.lines = false, nil
	go func() {
		defer close(f.ended)
		defer close(f.more)
		defer f.in.Close()
		text, err := decompressed(f.path, &f.at)
		if err == nil {
			err = f.scan(text, wants)
		}
		if err != nil {
			f.err = fmt.Errorf("%s: %w", f.path, err)
		}
	}()
}

// decompressed returns the text of a file that may be compressed, as its first bytes tell.
func decompressed(path string, in io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(in, 1<<20)
	magic, _ := b.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	case strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst"):
		return nil, errors.New("it is not compressed as its name says")
	}
	return b, nil
}

// scan reads lines. A file that is cut off, for example while it is written, is no error.
func (f *file) scan(text io.Reader, wants func(*Line) bool) error {
	lines := bufio.NewReaderSize(text, 1<<16)
	list, size := make([]*Line, 0, batch), 0
	for {
		raw, err := readLine(lines)
		if len(bytes.TrimSpace(raw)) > 0 {
			l := new(Line)
			switch l.parse(string(raw)) {
			case access:
				if wants == nil || wants(l) {
					list = append(list, l)
					size += l.size
				}
			case other:
				f.read.Other++
			case unread:
				if f.read.Unread++; len(f.read.First) < quotes {
					f.read.First = append(f.read.First, string(bytes.TrimSpace(raw[:min(len(raw), 70)])))
				}
			}
		}
		if len(list) == batch || size >= batchSize || err != nil && len(list) > 0 {
			select {
			case f.more <- slices.Clone(list):
			case <-f.done:
				return nil
			}
			list, size = list[:0], 0
		}
		switch {
		case err == io.ErrUnexpectedEOF: //nolint:errorlint // readers return it as it is
			f.read.Cut = []string{f.path}
			return nil
		case err == io.EOF: //nolint:errorlint // likewise
			return nil
		case err != nil:
			return err
		}
	}
}

// readLine returns the next line; if it is too long, only its beginning.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) <= longest {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// next reports whether there is a line.
func (f *file) next() bool {
	if len(f.lines) == 0 {
		f.lines = <-f.more
	}
	return len(f.lines) > 0
}

// stop ends the goroutine.
func (f *file) stop() {
	if f.waits {
		_ = f.in.Close()
		return
	}
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	for range f.more {
	}
	<-f.ended
}

// counter counts the bytes that were read.
type counter struct {
	io.Reader
	n atomic.Int64
}

// Read implements io.Reader.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}
