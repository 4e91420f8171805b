package limiter

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/rules"
)

// zoneOf returns a copy of a zone with a document applied.
func zoneOf(z *config.Zone, d *rules.Zone) (*config.Zone, error) {
	c := *z
	if d.Shadow != nil {
		c.Shadow = *d.Shadow
	}
	if d.HasRules {
		list, err := readRules(d.Rules)
		if err != nil {
			return nil, rules.At("/rules", err)
		}
		c.Rules = list
	}
	if d.HasOverrides {
		c.Overrides = nil
		for i, text := range d.Overrides {
			o, err := readOverride(text)
			if err != nil {
				return nil, rules.At(fmt.Sprintf("/overrides/%d", i), err)
			}
			c.Overrides = append(c.Overrides, o)
		}
	}
	return &c, nil
}

func readRules(texts []json.RawMessage) ([]*config.Rule, error) {
	list := make([]*config.Rule, len(texts))
	for i, text := range texts {
		r := new(config.Rule)
		err := rules.Fields(text, map[string]any{
			"name": &r.Name, "limit": &r.Limit, "window": &r.Window, "block": &r.Block, "notify": &r.Notify, "algorithm": &r.AlgorithmRaw,
		})
		if err != nil {
			return nil, rules.At(fmt.Sprintf("/%d", i), err)
		}
		list[i] = r
	}
	return list, nil
}

func readOverride(text json.RawMessage) (*config.Override, error) {
	o := new(config.Override)
	var list []json.RawMessage
	err := rules.Fields(text, map[string]any{"key": &o.Key, "keys": &o.Keys, "unlimited": &o.Unlimited, "rules": &list})
	if err != nil {
		return nil, err
	}
	if o.Rules, err = readRules(list); err != nil {
		return nil, rules.At("/rules", err)
	}
	return o, nil
}

// locate adds to an error of a zone in a document the JSON pointer to its rule or
// override.
func locate(z *config.Zone, err error) error {
	var at *config.Error
	if !errors.As(err, &at) {
		return err
	}
	for i, r := range z.Rules {
		if at.At == r {
			return &rules.Error{Pointer: fmt.Sprintf("/rules/%d", i), Err: at.Err}
		}
	}
	for i, o := range z.Overrides {
		if at.At == o {
			return &rules.Error{Pointer: fmt.Sprintf("/overrides/%d", i), Err: at.Err}
		}
		for j, r := range o.Rules {
			if at.At == r {
				return &rules.Error{Pointer: fmt.Sprintf("/overrides/%d/rules/%d", i, j), Err: at.Err}
			}
		}
	}
	return &rules.Error{Err: at.Err}
}

// unnamed returns an error of [config.Zone.Check] without the zone's name, which is in
// the JSON pointer already.
func unnamed(err error) error {
	var at *config.Error
	if errors.As(err, &at) {
		if inner := errors.Unwrap(at.Err); inner != nil {
			return &config.Error{At: at.At, Err: inner}
		}
	}
	return err
}

// inZone adds to an error the JSON pointer to a zone of a document.
func inZone(name string, err error) error {
	var at *rules.Error
	if !errors.As(err, &at) {
		err = &rules.Error{Err: fmt.Errorf("zone %s: %w", name, err)}
	}
	return rules.At("/zones"+rules.Pointer(name), err)
}
