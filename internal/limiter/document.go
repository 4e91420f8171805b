package limiter

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/rules"
)

// zoneOf returns a copy of a zone with a document applied.
func zoneOf(z *config.Zone, d *rules.Zone) *config.Zone {
	c := *z
	if d.Shadow != nil {
		c.Shadow = *d.Shadow
	}
	if d.Rules != nil {
		c.Rules = d.Rules
	}
	if d.Overrides != nil {
		c.Overrides = d.Overrides
	}
	c.Exceptions = d.Exceptions
	return &c
}

// locate adds to an error of a zone in a document the JSON pointer to its rule or
// override.
func locate(z *config.Zone, err error) error {
	at, ok := errors.AsType[*config.Error](err)
	if !ok {
		return err
	}
	pointers := make(map[any]string)
	add := func(pointer string, o *config.Override) {
		if _, null := pointers[o]; !null { // the first null is named
			pointers[o] = pointer
		}
		for i, r := range cmp.Or(o, new(config.Override)).Rules {
			if _, null := pointers[r]; !null {
				pointers[r] = fmt.Sprintf("%s/rules/%d", pointer, i)
			}
		}
	}
	add("", &config.Override{Rules: z.Rules})
	for i, o := range z.Overrides {
		add(fmt.Sprintf("/overrides/%d", i), o)
	}
	for i, x := range z.Exceptions {
		if x != nil {
			add(fmt.Sprintf("/exceptions/%d", i), &x.Override)
		}
	}
	return &rules.Error{Pointer: pointers[at.At], Err: at}
}

// unnamed returns an error of [config.Zone.Check] without the zone's name, which is in
// the JSON pointer already.
func unnamed(err error) error {
	if at, ok := errors.AsType[*config.Error](err); ok {
		if inner := errors.Unwrap(at.Err); inner != nil {
			return &config.Error{At: at.At, Err: inner}
		}
	}
	return err
}

// placed adds to an error of a zone in the configuration the JSON pointer to its rule or override,
// in the zone.
func placed(z *config.Zone, err error) error {
	if at, ok := errors.AsType[*rules.Error](locate(z, unnamed(err))); ok && at.Pointer != "" {
		return fmt.Errorf("zone %s: %w", z.Name, at)
	}
	return err
}

// inZone adds to an error the JSON pointer to a zone of a document.
func inZone(name string, err error) error {
	if _, ok := errors.AsType[*rules.Error](err); !ok {
		err = &rules.Error{Err: fmt.Errorf("zone %s: %w", name, err)}
	}
	return rules.At("/zones"+rules.Pointer(name), err)
}
