package settle

import "bytes"

// mediaNames are the members in which models take pictures, sound and files as base64.
var mediaNames = map[string]bool{
	"data": true, "inline_data": true, "inlineData": true, "file_data": true, "fileData": true, "b64_json": true, "bytes": true,
	"image": true, "images": true, "image_url": true, "audio": true, "video": true, "url": true, "base64": true, "image_base64": true,
	"imageBytes": true, "bytesBase64Encoded": true, "audio_data": true, "content_base64": true,
}

// longestName is more than the longest name, and than what stands before the data of a data URL.
const longestName = 96

// isDataURL reports whether a text is what stands before the data of a data URL.
func isDataURL(head []byte) bool {
	return len(head) > len("data:") && bytes.EqualFold(head[:len("data:")], []byte("data:")) && bytes.HasSuffix(bytes.ToLower(head), []byte(";base64,"))
}

// isBase64 are the bytes of base64, and of base64url.
var isBase64 = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=" {
		is[c] = true
	}
	return is
}()

// window is how many letters of base64 are judged at once.
const window = 1024

// data is what may be base64, in a string.
type data struct {
	begun bool
	last  bool  // the window before was of a file
	n     int64 // letters of the window so far

	times [64]uint16 // how often each letter stands in the window

	bits    uint32 // of the bytes that they encode
	held    int    // number of bits
	zeros   int64  // bytes
	written int64  // bytes of text
	long    int64  // bytes of the character of UTF-8 that has begun
	more    int64  // bytes that it still has
}

// add reads a letter. It reports whether the window is full.
func (d *data) add(c byte) bool {
	d.n++
	if v := sextets[c]; v < 64 {
		d.times[v]++
		d.bits = d.bits<<6 | uint32(v)
		if d.held += 6; d.held >= 8 {
			d.held -= 8
			d.decoded(byte(d.bits >> d.held))
		}
	}
	return d.n == window
}

func (d *data) decoded(b byte) {
	switch {
	case b == 0:
		d.zeros++
	case b >= ' ' && b < 0x7f, b == '\n', b == '\r', b == '\t':
		d.written++
		d.more = 0
	case d.more > 0 && b&0xc0 == 0x80:
		if d.more--; d.more == 0 {
			d.written += d.long
		}
	default:
		switch d.long = 0; {
		case b&0xe0 == 0xc0:
			d.long = 2
		case b&0xf0 == 0xe0:
			d.long = 3
		case b&0xf8 == 0xf0:
			d.long = 4
		}
		d.more = max(0, d.long-1)
	}
}

// judge reports whether the window is of a file: it decodes to no text, and its letters are not those of words, but
// nearly as evenly spread as those of what is compressed.
func (d *data) judge() bool {
	total := d.n * 3 / 4
	isText := d.written*10 > (total-d.zeros)*7 && d.written*4 > total
	var letters, common, pairs int64
	for v, times := range d.times {
		if v == silent || v == loud {
			continue
		}
		n := int64(times)
		letters += n
		pairs += n * (n - 1)
		if isCommon[v] {
			common += n
		}
	}
	isWords := common*100 > letters*43
	isUneven := pairs*1000 > letters*(letters-1)*33 // 16 if all are as frequent, 40 of English in any case, 1000 of one letter
	d.last = !isText && (letters*8 <= d.n || !isWords && !isUneven)
	return d.last
}

// silent and loud are the letters A and / of silence and single colors.
const (
	silent = 0
	loud   = 63
)

// next begins the next window.
func (d *data) next() {
	*d = data{begun: true, last: d.last, bits: d.bits, held: d.held, long: d.long, more: d.more}
}

// sextets are what letters of base64 encode; 64: nothing.
var sextets = func() (of [256]byte) {
	for i := range of {
		of[i] = 64
	}
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" {
		of[c] = byte(i)
	}
	of['-'], of['_'] = 62, 63
	return of
}()

// isCommon says of what letters encode whether words of most languages are made of it: two of three letters are, and
// one of three in the base64 of a file.
var isCommon = func() (is [64]bool) {
	for _, c := range "etoinsrhluETOINSRHLU" {
		is[sextets[c]] = true
	}
	return is
}()
