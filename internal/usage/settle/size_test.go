package settle

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode"
)

// tokensOfBody returns for how many tokens a body is taken, read in pieces of a size.
func tokensOfBody(text string, piece int) int64 {
	var s size
	for p := []byte(text); len(p) > 0; p = p[min(piece, len(p)):] {
		s.add(p[:min(piece, len(p))])
	}
	return s.tokens(int64(len(text)))
}

// mediaFiles are files as models take them, by name.
func mediaFiles(t *testing.T) map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	picture := image.NewRGBA(image.Rect(0, 0, 300, 200))
	for i := range 300 * 200 {
		x, y := i%300, i/300
		picture.Set(x, y, color.RGBA{uint8(128 + 60*math.Sin(float64(x)/40) + float64(random.IntN(12))), uint8(x), uint8(y), 255})
	}
	var asJPEG, asPNG bytes.Buffer
	if err := jpeg.Encode(&asJPEG, picture, nil); err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(&asPNG, picture); err != nil {
		t.Fatal(err)
	}
	sound, silence := make([]byte, 0, 64000), make([]byte, 64000)
	for i := range 32000 {
		sound = binary.LittleEndian.AppendUint16(sound, uint16(int16(3000*math.Sin(float64(i)/17)+30*random.NormFloat64())))
	}
	return map[string][]byte{"JPEG": asJPEG.Bytes(), "PNG": asPNG.Bytes(), "sound": sound, "silence": silence}
}

// TestTokensOfMedia reads files in base64, at the places where models take them: a token is 256 bytes of them. At
// another place, and before so many letters that they can be judged, four bytes are.
func TestTokensOfMedia(t *testing.T) {
	for name, file := range mediaFiles(t) {
		plain := base64.StdEncoding.EncodeToString(file)
		for place, isMedia := range map[string]bool{
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}`:        true,
			`{"type":"input_image","image_url":"data:image/png;charset=x;base64,%s"}`:    true,
			`{"anything":"DATA:image/png;BASE64,%s"}`:                                    true,
			`{"source": {"type": "base64", "media_type": "image/png", "data" : "%s"}}`:   true,
			`{"inline_data":{"mime_type":"image/png","data":"%s"}}`:                      true,
			`{"inlineData":{"data":"%s","mimeType":"image/png"}}`:                        true,
			`{"input_audio":{"format":"wav","data":"%s"}}`:                               true,
			`{"file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,%s"}}`: true,
			`{"image":{"format":"png","source":{"bytes":"%s"}}}`:                         true,
			`{"prompt":"a","images":["%s"]}`:                                             true,
			`{"prompt":"a","images":["","%s"]}`:                                          true,
			`{"content":"%s"}`:                                                           false,
			`{"data":"a","content":"%s"}`:                                                false,
			`{"text":"data:image/png;%s"}`:                                               false,
			`%s`:                                                                         false,
		} {
			for spelling, encoded := range map[string]string{
				"": plain, "URL": base64.URLEncoding.EncodeToString(file), "slashes": strings.ReplaceAll(plain, "/", `\/`), "lines": inLines(plain),
			} {
				body := fmt.Sprintf(place, encoded)
				got := tokensOfBody(body, len(body))
				least, most := int64(len(plain))/256, int64(len(body))/40
				if !isMedia {
					least, most = int64(len(body)/4), int64(len(body)/4+1)
				}
				if got < least || got > most {
					t.Errorf("%s, %s, in %s: %d tokens of %d bytes, want %d to %d", name, spelling, place, got, len(body), least, most)
				}
				if pieces := tokensOfBody(body, 7); pieces != got {
					t.Errorf("%s, %s, in %s: %d tokens in pieces, %d whole", name, spelling, place, pieces, got)
				}
			}
		}
	}
}

// inLines breaks base64 into lines, as MIME does.
func inLines(text string) string {
	var b strings.Builder
	for len(text) > 76 {
		b.WriteString(text[:76] + `\r\n`)
		text = text[76:]
	}
	return b.String() + text
}

// TestTokensOfWords reads text at places where models take files: four bytes are a token, with whatever letters of
// base64 words are joined, and encoded.
func TestTokensOfWords(t *testing.T) {
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	var camel strings.Builder
	for _, w := range words {
		camel.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	wide := make([]byte, 0, 2*len(text))
	for _, c := range text {
		wide = append(wide, c, 0)
	}
	cases := map[string]string{
		"camel case": camel.String(), "upper case": strings.ToUpper(strings.Join(words, "/")), "numbers": strings.Repeat("12345+678+9012+334+5567+88990+", 900),
		"encoded": base64.StdEncoding.EncodeToString(text), "encoded UTF-16": base64.StdEncoding.EncodeToString(wide),
		"encoded Chinese":                base64.StdEncoding.EncodeToString([]byte(strings.Repeat("語言模型的限制是每分鐘可以使用的數量", 500))),
		"encoded, with a file before it": base64.StdEncoding.EncodeToString(append(mediaFiles(t)["JPEG"][:768], text...)),
	}
	joined, random := strings.Join(words, "/"), rand.New(rand.NewPCG(3, 4))
	ofLetters := func(letters string) string {
		b := make([]byte, 30_000)
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	cases["digits for letters"] = strings.NewReplacer("e", "3", "o", "0", "i", "1", "a", "4", "s", "5", "t", "7").Replace(joined)
	cases["no vowels"] = strings.NewReplacer("e", "", "o", "", "i", "", "a", "", "u", "").Replace(joined)
	cases["other letters"] = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			return 'a' + (c-'a'+13)%26
		}
		return c
	}, joined)
	cases["any case"] = strings.Map(func(c rune) rune {
		if random.IntN(2) == 0 {
			return unicode.ToUpper(c)
		}
		return c
	}, joined)
	cases["hexadecimal"], cases["four letters"], cases["ten letters"] = ofLetters("0123456789abcdef"), ofLetters("ACGT"), ofLetters("bcdfgjkqxz")
	cases["Indonesian"] = strings.Repeat("saya/makan/nasi/goreng/dan/ayam/bakar/di/rumah/makan/padang/bersama/keluarga/", 400)
	cases["Finnish"] = strings.Repeat("kaikki+ihmiset+syntyvat+vapaina+ja+tasavertaisina+arvoltaan+ja+oikeuksiltaan+", 400)
	for _, between := range []string{"+", "/", "-", "=", "_", "1", "42", "+/", "+-+-", "2026", "zXqJkVwWyY"} {
		cases["words with "+between] = strings.Join(words, between)
	}
	for name, text := range cases {
		for _, place := range []string{`{"content":"%s"}`, `{"data":"%s"}`, `{"url":"data:image/png;base64,%s"}`} {
			body := fmt.Sprintf(place, text)
			if got, want := tokensOfBody(body, 1000), int64(len(body)/4)*95/100-256; got < want {
				t.Errorf("%s in %s: %d tokens of %d bytes, want at least %d", name, place, got, len(body), want)
			}
		}
	}
}

// TestTokensOfRest checks that the rest of a body of a known length is taken for what its beginning ended with.
func TestTokensOfRest(t *testing.T) {
	for text, want := range map[string]int64{
		`{"content":"`: 1 << 18,
		`{"data":"` + base64.StdEncoding.EncodeToString(mediaFiles(t)["JPEG"])[:4096]:    (1<<20-9)/256 + 3,
		`{"content":"` + base64.StdEncoding.EncodeToString(mediaFiles(t)["JPEG"])[:4096]: 1 << 18,
	} {
		var s size
		s.add([]byte(text))
		if got := s.tokens(1 << 20); got < want-2 || got > want+2 {
			t.Errorf("%.20s: %d tokens, want about %d", text, got, want)
		}
	}
}
