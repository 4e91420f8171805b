package sources

import (
	"encoding/json"

	"github.com/dianalimiter/diana/rules"
)

// maxChanges is the number of changes that are recorded.
const maxChanges = 50

// The ends of the names of what is kept beside a document, behind a colon or, of files, a dot.
const (
	besideChanges  = "changes"
	besidePrevious = "previous"
)

// parseChanges returns the recorded changes. A text that is none counts as no change.
func parseChanges(text []byte) (list []rules.Change) {
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	return list
}

// record adds a change to the text of the recorded ones.
func record(text []byte, c rules.Change) ([]byte, error) {
	list := append([]rules.Change{c}, parseChanges(text)...)
	return json.MarshalIndent(list[:min(len(list), maxChanges)], "", "  ")
}
