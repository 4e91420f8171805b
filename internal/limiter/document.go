package limiter

import (
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

// inDocument adds to an error of a zone its position in a document; nil: in the configuration.
func inDocument(d *rules.Document, zone string, err error) error {
	if d == nil {
		return config.InZone(zone, err)
	}
	return config.At(rules.Pointer("zones", zone), err)
}
