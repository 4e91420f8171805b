package cli

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/dianalimiter/diana/internal/limiter"
)

// fixed are the fields whose texts nobody but Diana chooses: they are printed as they are.
var fixed = []string{"Address", "Algorithm", "Decision", "KeyMissing", "Meters", "Mode", "Origin", "Reset", "Why", "Hit.Key", "Key.Key", "Window.Rule", "Window.Window"}

// fill gives a value and all that it has other values, many of them zero. Texts that are not fixed
// have control characters.
func fill(r *rand.Rand, v reflect.Value, in, field string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int63n(2)*r.Int63n(1<<32), 0)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"burst": 9, "time_zone": "a\tb"}`))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.Intn(2) > 0)
	case reflect.String:
		if !slices.Contains(fixed, field) && !slices.Contains(fixed, in+"."+field) {
			v.SetString([]string{"", "a", "\t", "\f", "\r", "\x1b[2J", "\xff", "\xffa\xff", "\u202e"}[r.Intn(9)])
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int63n(3))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(r.Intn(3)))
	case reflect.Float64:
		v.SetFloat(float64(r.Intn(2)))
	case reflect.Pointer:
		if v.SetZero(); r.Intn(3) > 0 || field == "Exceptions" { // none of its elements is nil
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), in, field)
		}
	case reflect.Slice:
		n := r.Intn(3)
		if field == "Course" { // has a fixed length
			n = 3
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range v.Len() {
			fill(r, v.Index(i), in, field)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		name, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(r, name, in, field)
		fill(r, value, in, field)
		v.SetMapIndex(name, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(r, v.Field(i), v.Type().Name(), f.Name)
			}
		}
	}
}

// TestTemplates checks that the templates can print whatever an answer has, as no compiler does, and
// that they let no control character through.
func TestTemplates(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 100 {
		for name, answer := range map[string]any{
			"zones": new(Zones), "validation": new(Validation), "written": new(Validation), "key": new(limiter.Key), "explanation": new(Explanation),
			"top": new(Top), "tops": new(Tops), "spend": new(Spend), "spends": new(Spends), "found": new(Found), "changes": new(Changes), "replayed": new(replayed),
		} {
			fill(r, reflect.ValueOf(answer).Elem(), "", "")
			if x, is := answer.(*replayed); is && x.Measured == nil && x.Requests == nil {
				continue // it has one of both
			}
			var b strings.Builder
			if printed(t, &b, name, answer); strings.ContainsFunc(b.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
				t.Fatalf("%s: %q", name, b.String())
			}
		}
	}
}
