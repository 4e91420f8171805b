package test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// aCredential is a place of an API key in a request, with the texts by which a client can bring
// the same key.
type aCredential struct {
	placeholder string
	spellings   []string
	add         func(r *http.Request, value string)
	values      func(r *http.Request) []string // as next handlers read them, all of the name
}

func credentials() map[string]aCredential {
	header := func(name string) func(r *http.Request, value string) {
		return func(r *http.Request, value string) { r.Header.Add(name, value) }
	}
	return map[string]aCredential{
		"header": {
			"{header.X-Api-Key}",
			[]string{"stolen"},
			header("X-Api-Key"),
			func(r *http.Request) []string { return r.Header.Values("X-Api-Key") },
		},
		"authorization": {
			"{header.Authorization}",
			[]string{"Bearer stolen", "bearer stolen", "BEARER   stolen"},
			header("Authorization"),
			func(r *http.Request) (list []string) {
				for _, v := range r.Header.Values("Authorization") {
					list = append(list, v[strings.LastIndexByte(v, ' ')+1:])
				}
				return list
			},
		},
		// The last character of base64 has up to four bits that say nothing; programs skip what is
		// none of its characters.
		"basic": {
			"{header.Authorization}",
			[]string{"Basic c3RvbGVuOng=", "basic c3RvbGVuOnh=", "Basic c3RvbGVuOng", "BASIC c3Rv bGVuOng=="},
			header("Authorization"),
			func(r *http.Request) (list []string) {
				for _, v := range r.Header.Values("Authorization") {
					_, v, _ = strings.Cut(v, " ")
					text, _ := base64.RawStdEncoding.DecodeString(strings.NewReplacer(" ", "", "=", "").Replace(v))
					user, _, _ := strings.Cut(string(text), ":")
					list = append(list, user)
				}
				return list
			},
		},
		"cookie": {
			"{cookie.sid}",
			[]string{"stolen", "%73tolen", "s%74%6flen", `"stolen"`, `"\163tolen"`},
			func(r *http.Request, value string) {
				r.Header.Set("Cookie", strings.TrimPrefix(r.Header.Get("Cookie")+"; sid="+value, "; "))
			},
			func(r *http.Request) (list []string) {
				for pair := range strings.SplitSeq(r.Header.Get("Cookie"), ";") {
					if name, v, _ := strings.Cut(strings.TrimSpace(pair), "="); name == "sid" {
						v = strings.ReplaceAll(strings.Trim(v, `"`), `\163`, "s")
						v, _ = url.PathUnescape(v)
						list = append(list, v)
					}
				}
				return list
			},
		},
		// Python's SimpleCookie ends a value at white space, and begins another cookie there.
		"spaced cookie": {
			"{cookie.sid}",
			[]string{"stolen", "stolen x", `"stolen" x=1`},
			func(r *http.Request, value string) {
				r.Header.Set("Cookie", strings.TrimSpace(r.Header.Get("Cookie")+" sid="+value))
			},
			func(r *http.Request) (list []string) {
				for pair := range strings.FieldsSeq(strings.ReplaceAll(r.Header.Get("Cookie"), ";", " ")) {
					if name, v, _ := strings.Cut(pair, "="); name == "sid" {
						list = append(list, strings.Trim(v, `"`))
					}
				}
				return list
			},
		},
		"query": {
			"{query.key}",
			[]string{"stolen", "%73tolen"},
			func(r *http.Request, value string) { r.URL.RawQuery += "&key=" + value },
			func(r *http.Request) (list []string) {
				for pair := range strings.FieldsFuncSeq(r.URL.RawQuery, func(c rune) bool { return c == '&' || c == ';' }) {
					if name, v, _ := strings.Cut(pair, "="); name == "key" {
						v, _ = url.QueryUnescape(v)
						list = append(list, v)
					}
				}
				return list
			},
		},
	}
}

// takes are the ways in which next handlers take one of several values.
var takes = map[string]func(list []string) bool{
	"first": func(list []string) bool { return len(list) > 0 && list[0] == "stolen" },
	"last":  func(list []string) bool { return len(list) > 0 && list[len(list)-1] == "stolen" },
	"join": func(list []string) bool {
		return slices.Contains(strings.Split(strings.Join(list, ","), ","), "stolen")
	},
}

// TestRepeatedCredential sends a stolen API key in all spellings, alone and beside another
// that is new with each request, before and after it. Whichever of them the next handler takes,
// it is served no more often than the limit, and not at all once the key is blocked.
func TestRepeatedCredential(t *testing.T) {
	for name, c := range credentials() {
		for _, option := range []string{"", "key_repeated deny", "key_repeated first"} {
			t.Run(name+" "+option, func(t *testing.T) {
				served := make(map[string]int)
				s := serve(t, setup{site: `
					rate_limit {
						zone z {
							key ` + c.placeholder + `
							` + option + `
							rule 10/1h block 1d
						}
					}
					` + handle(t, "*", func(_ http.ResponseWriter, r *http.Request) error {
					for taken, takes := range takes {
						if takes(c.values(r)) {
							served[taken]++
						}
					}
					return nil
				})})
				for i := range 12 {
					other := "random" + string(rune('a'+i))
					for _, stolen := range c.spellings {
						for _, values := range [][]string{{stolen, other}, {other, stolen}, {stolen, stolen}, {stolen}} {
							s.bring("/", c, values)
						}
					}
				}
				for taken := range takes {
					if served[taken] != 10 {
						t.Errorf("a next handler that takes %s: served %d times, want 10", taken, served[taken])
					}
				}
			})
		}
	}
}

// bring sends a request with these values of a credential.
func (s *site) bring(path string, c aCredential, values []string) (status int) {
	s.Helper()
	r := req{path: path}.http(s)
	for _, v := range values {
		c.add(r, v)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestRepeatedNumbers sends costs and limits more than once: they count as missing, however they
// are spelt.
func TestRepeatedNumbers(t *testing.T) {
	for name, c := range credentials() {
		if name == "authorization" || name == "basic" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{site: `
				rate_limit {
					zone cost {
						match path /cost
						cost ` + c.placeholder + `
						rule 10/1h
					}
					zone limit {
						match path /limit
						rule ` + c.placeholder + `/1h else 3
					}
				}
				respond ok`})
			for i := range 10 { // each costs 1
				if status := s.bring("/cost", c, []string{"5", strconv.Itoa(i)}); status != 200 {
					t.Fatalf("request %d: %d", i, status)
				}
			}
			for i := range 5 {
				want := map[bool]int{true: 200, false: 429}[i < 3]
				if status := s.bring("/limit", c, []string{"100", "200"}); status != want {
					t.Errorf("request %d: %d, want %d", i, status, want)
				}
			}
		})
	}
}

// TestRepeatedKeyInShadow repeats a key in a zone in shadow: the request passes as it is, and the
// denial is reported.
func TestRepeatedKeyInShadow(t *testing.T) {
	c := credentials()["header"]
	for _, option := range []string{"deny", "first"} {
		var got []string
		s := serve(t, setup{site: `
			rate_limit {
				zone z {
					key ` + c.placeholder + `
					key_repeated ` + option + `
					rule 10/1h
					shadow
				}
			}
			` + handle(t, "*", func(_ http.ResponseWriter, r *http.Request) error {
			got = c.values(r)
			return nil
		})})
		if status := s.bring("/", c, []string{"a", "b"}); status != 200 || len(got) != 2 {
			t.Errorf("%s: status %d, the next handler has %q", option, status, got)
		}
	}
}
