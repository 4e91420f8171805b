package config

// Document is what changes zones at run time: the parsed document of a rule source. It is immutable.
type Document struct {
	Zones map[string]*Changes `json:"zones"` // by name
	All   *Changes            `json:"-"`     // the zone "*", a switch for all zones; nil: neither off nor shadow
}

// Changes are the changes of a document to one zone. Options that are nil are not changed.
type Changes struct {
	// Enabled, if false, lets every request pass the zone uncounted.
	Enabled *bool `json:"enabled"`

	// Shadow replaces the zone's shadow.
	Shadow *bool `json:"shadow"`

	// Rules replace the zone's.
	Rules []*Rule `json:"rules"`

	// Overrides replace the zone's.
	Overrides []*Override `json:"overrides"`

	// Exceptions precede all overrides, and replace none.
	Exceptions []*Exception `json:"exceptions"`
}

// Of returns the changes to a zone, with those to all zones; nil: none.
func (d *Document) Of(zone string) *Changes {
	if d == nil {
		return nil
	}
	z := d.Zones[zone]
	if d.All == nil {
		return z
	}
	var all Changes
	if z != nil {
		all = *z
	}
	if d.All.Enabled != nil {
		all.Enabled = d.All.Enabled
	}
	if d.All.Shadow != nil {
		all.Shadow = d.All.Shadow
	}
	return &all
}

// Apply returns a copy of a zone with the changes applied.
func (c *Changes) Apply(to *Zone) *Zone {
	z := *to
	if c.Shadow != nil {
		z.Shadow = *c.Shadow
	}
	if c.Rules != nil {
		z.Rules = c.Rules
	}
	if c.Overrides != nil {
		z.Overrides = c.Overrides
	}
	z.Exceptions = c.Exceptions
	return &z
}
