package config_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/config"
)

// TestErrorHasOnePosition joins the positions of nested errors, and names the zone once.
func TestErrorHasOnePosition(t *testing.T) {
	wrong := errors.New("wrong")
	rule := config.At("/rules/0", wrong)
	inFile := fmt.Errorf("file: %w", config.InZone("a", rule))
	for want, err := range map[string]error{
		"/zones/a/rules/0: wrong": config.At("/zones", config.At("/a", rule)),
		"zone a: /rules/0: wrong": config.InZone("a", rule),
		"zone a: wrong":           config.InZone("a", wrong),
		"/zones/b/rules/0: wrong": config.At("/zones/b", inFile),
		"zone b: /rules/0: wrong": config.InZone("b", inFile),
	} {
		if err.Error() != want || !errors.Is(err, wrong) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
