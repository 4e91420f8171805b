// Package edit changes documents of rules as operators do: a limit, shadow, an exception for a
// key. Its functions turn one text into another, and write nothing.
//
// Nothing here is on the way of a request.
package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// Edit is one change of a document.
type Edit struct {
	// What to do: set, shadow, off, on, block, allow, unblock or undo.
	Do string `json:"do"`

	// The name of the zone; * stands for all, of shadow, off and on. None of undo.
	Zone string `json:"zone,omitempty"`

	// What follows on the command line, such as 200/1m burst 40 of set.
	Words []string `json:"words,omitempty"`

	// The instant that the words of block and allow end with, where they were said: a day and a
	// time without a zone mean something else elsewhere. Absent: as they read on this instance.
	Until time.Time `json:"until,omitzero"`

	// Who makes it, which an exception keeps.
	Who string `json:"who,omitempty"`

	// Why it is made, likewise.
	Why string `json:"why,omitempty"`
}

// String returns the edit as the command line has it.
func (e Edit) String() string {
	return strings.TrimSpace(strings.Join(append([]string{e.Do, e.Zone}, e.Words...), " "))
}

// Zone is what an edit has to know of a zone that runs.
type Zone struct {
	Parts  int    // number of parts of its key
	Shadow bool   // whether it is configured in shadow
	Rules  []Rule // in force
}

// Rule is a rule in force.
type Rule struct {
	Algorithm string          // its name
	Config    json.RawMessage // the rule, as a configuration has it
}

// Base is what edits begin with.
type Base struct {
	Document []byte                  // the text to change
	Previous []byte                  // the text before it, for undo; nil: there is none
	Zone     func(name string) *Zone // nil: no zone of this name runs
	Zones    func() []string         // the names of those that run
	Now      time.Time               // when the edits are made
}

// all is the name that stands for every zone.
const all = "*"

type object = map[string]any

// Apply returns the document after edits, in the form of [Canonical].
func Apply(b Base, edits []Edit) (text []byte, err error) {
	text = b.Document
	for _, e := range edits {
		if e.Do == "undo" {
			if b.Previous == nil {
				return nil, errors.New("undo: no change was recorded before the present document")
			}
			text = b.Previous
			continue
		}
		doc, err := parse(text)
		if err == nil {
			err = e.apply(b, doc)
		}
		if err == nil {
			text, err = format(doc)
		}
		if err != nil {
			return nil, err
		}
	}
	return Canonical(text)
}

// Canonical returns a document with its members in the order of their names, indented.
func Canonical(text []byte) ([]byte, error) {
	doc, err := parse(text)
	if err != nil {
		return nil, err
	}
	return format(doc)
}

func parse(text []byte) (doc object, err error) {
	if !utf8.Valid(text) { // encoding/json would read other characters
		return nil, errors.New("the document is invalid, replace it as a whole: want UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff")))) // without a byte order mark
	dec.UseNumber()
	err = dec.Decode(&doc)
	if _, end := dec.Token(); err == nil && end != io.EOF {
		err = errors.New("more follows the object")
	}
	if err != nil {
		return nil, fmt.Errorf("the document is invalid, replace it as a whole: %w", err)
	}
	if doc == nil {
		return nil, errors.New("the document is invalid, replace it as a whole: null: want an object")
	}
	return doc, nil
}

func format(doc object) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}

// apply applies the edit to a document.
func (e Edit) apply(b Base, doc object) error {
	zones, _ := doc["zones"].(object)
	if zones == nil {
		zones = object{}
		doc["zones"] = zones
	}
	own, _ := zones[e.Zone].(object)
	if own == nil {
		own = object{}
	}
	z := &Zone{}
	if e.Zone != all {
		if z = b.Zone(e.Zone); z == nil {
			return fmt.Errorf("zone %q: %s", e.Zone, option.None(e.Zone, b.Zones()))
		}
	} else if !slices.Contains([]string{"shadow", "off", "on"}, e.Do) {
		return fmt.Errorf("%s of all zones: want the name of one", e.Do)
	}
	var err error
	switch e.Do {
	case "set":
		err = set(own, z, e.Words)
	case "shadow":
		err = shadow(own, z, e.Words)
	case "off", "on":
		if delete(own, "enabled"); e.Do == "off" {
			own["enabled"] = false
		}
		if len(e.Words) > 0 {
			err = fmt.Errorf("%s: %q behind the zone: want one zone, or --all", e.Do, e.Words)
		}
	case "block", "allow", "unblock":
		err = except(own, z, e, b.Now)
	default:
		return fmt.Errorf("%q: want set, shadow, off, on, block, allow, unblock or undo", e.Do)
	}
	if zones[e.Zone] = own; len(own) == 0 {
		delete(zones, e.Zone)
	}
	return err
}

// shadow puts a zone into shadow or takes it out. A document need not say what is configured.
func shadow(own object, z *Zone, words []string) error {
	if len(words) != 1 || words[0] != "on" && words[0] != "off" {
		return fmt.Errorf("shadow %s: want on or off", strings.Join(words, " "))
	}
	if delete(own, "shadow"); (words[0] == "on") != z.Shadow {
		own["shadow"] = words[0] == "on"
	}
	return nil
}
