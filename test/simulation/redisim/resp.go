package redisim

import (
	"bufio"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
)

// reply is a reply to a command, before it is encoded.
type reply struct {
	kind kind
	text string
	n    int64
	list []reply
}

// kind is the kind of a reply; most are the first byte of their encoding.
type kind byte

const (
	none      kind = 0 // nothing is sent
	status    kind = '+'
	failure   kind = '-'
	integer   kind = ':'
	bulk      kind = '$'
	array     kind = '*'
	mapping   kind = '%' // an array of keys and values in RESP2
	push      kind = '>' // an array in RESP2
	null      kind = '_'
	nullArray kind = 'N'
	boolean   kind = '#'
	sequence  kind = 'S' // replies to one command, one after another
)

var ok = reply{kind: status, text: "OK"}

func text(s string) reply        { return reply{kind: bulk, text: s} }
func number(n int64) reply       { return reply{kind: integer, n: n} }
func fail(s string) reply        { return reply{kind: failure, text: s} }
func many(list ...reply) reply   { return reply{kind: array, list: list} }
func fields(list ...reply) reply { return reply{kind: mapping, list: list} }

func texts(list ...string) reply {
	r := reply{kind: array}
	for _, s := range list {
		r.list = append(r.list, text(s))
	}
	return r
}

// oneLine is what Redis makes of an error or status that has several lines.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// append appends the encoding of the reply in a version of the protocol.
func (r reply) append(b []byte, resp int) []byte {
	switch r.kind {
	case none:
	case status, failure:
		b = append(append(b, byte(r.kind)), oneLine.Replace(strings.Trim(r.text, "\r\n"))...)
		b = append(b, "\r\n"...)
	case integer:
		b = appendHead(b, ':', r.n)
	case boolean:
		switch {
		case resp < 3 && r.n == 0:
			b = append(b, "$-1\r\n"...)
		case resp < 3:
			b = append(b, ":1\r\n"...)
		case r.n == 0:
			b = append(b, "#f\r\n"...)
		default:
			b = append(b, "#t\r\n"...)
		}
	case bulk:
		b = appendHead(b, '$', int64(len(r.text)))
		b = append(append(b, r.text...), "\r\n"...)
	case null, nullArray:
		switch {
		case resp >= 3:
			b = append(b, "_\r\n"...)
		case r.kind == null:
			b = append(b, "$-1\r\n"...)
		default:
			b = append(b, "*-1\r\n"...)
		}
	case array, mapping, push, sequence:
		b = r.appendList(b, resp)
	}
	return b
}

func (r reply) appendList(b []byte, resp int) []byte {
	switch {
	case r.kind == sequence:
	case r.kind == mapping && resp >= 3:
		b = appendHead(b, '%', int64(len(r.list)/2))
	case r.kind == push && resp >= 3:
		b = appendHead(b, '>', int64(len(r.list)))
	default:
		b = appendHead(b, '*', int64(len(r.list)))
	}
	for i := range r.list {
		b = r.list[i].append(b, resp)
	}
	return b
}

func appendHead(b []byte, head byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, head), n, 10), "\r\n"...)
}

const (
	maxArgs   = math.MaxInt32
	maxBulk   = 512 << 20
	maxInline = 64 << 10
)

// protocolError is an error after which Redis closes the connection.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// readCommand reads a command: an array of strings, or a line of words.
func readCommand(r *bufio.Reader) ([]string, error) {
	first, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	if first != '*' {
		_ = r.UnreadByte()
		line, err := readLine(r)
		return strings.Fields(line), err
	}
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil || n > maxArgs {
		return nil, protocolError("invalid multibulk length")
	}
	args := make([]string, 0, max(0, min(n, 1024)))
	for range n {
		arg, err := readBulk(r)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

func readBulk(r *bufio.Reader) (string, error) {
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	if line == "" || line[0] != '$' {
		found := byte(' ')
		if line != "" {
			found = line[0]
		}
		return "", protocolError("expected '$', got '" + string(found) + "'")
	}
	n, err := strconv.ParseInt(line[1:], 10, 64)
	if err != nil || n < 0 || n > maxBulk {
		return "", protocolError("invalid bulk length")
	}
	if int(n)+2 > r.Size() {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		_, err = r.Discard(2)
		return string(b), err
	}
	b, err := r.Peek(int(n) + 2)
	if err != nil {
		return "", err
	}
	arg := string(b[:n])
	_, err = r.Discard(len(b))
	return arg, err
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", protocolError("too big inline request")
	}
	return strings.TrimRight(string(line), "\r\n"), err
}
