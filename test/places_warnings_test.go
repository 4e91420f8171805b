package test

import "testing"

// TestRawMatcherWarning checks the warning about matchers that compare the path as it is spelt.
func TestRawMatcherWarning(t *testing.T) {
	const msg = "a matcher of the zone compares the path as clients spell it"
	zone := func(match string) string {
		return "rate_limit {\nzone " + newName("z") + " {\n" + match + "\nrule 5/s\n}\n}\n"
	}
	for match, want := range map[string]int{
		"match expression `{path} == \"/export\"`":                1,
		"match expression `{uri}.startsWith(\"/export\")`":        1,
		"match vars {path} /export":                               1,
		"match vars_regexp {http.request.orig_uri.path} ^/export": 1,
		"match not vars {path} /export":                           1,
		"match expression `path('/export')`":                      0,
		"match path /export":                                      0,
		"match expression `{method} == \"POST\"`":                 0,
		"match vars {query.a} b":                                  0,
		"exempt vars {path} /public":                              0,
	} {
		warned(t, setup{site: zone(match)}, msg, want)
	}
	warned(t, setup{site: "@x expression `{path} == \"/export\"`\nroute @x {\n" + zone("") + "}"}, msg, 1)
}

// TestInterceptWarning checks the warning about zones whose responses intercept replaces.
func TestInterceptWarning(t *testing.T) {
	const msg, replaced = "intercept stands around a zone", "intercept {\n@bad status 5xx\nhandle_response @bad {\nrespond sorry\n}\n}\n"
	zone := func(options string) string {
		return "rate_limit {\nzone " + newName("z") + " {\n" + options + "\nrule 5/s\n}\n}\n"
	}
	for site, want := range map[string]int{
		"route {\n" + replaced + zone("count_status 2xx") + "}":                                                           1,
		"route {\n" + replaced + zone("settle bytes") + "}":                                                               1,
		"route {\n" + replaced + "route {\n" + zone("count_status 2xx") + "}\n}":                                          1,
		"route {\n" + replaced + zone("in_flight 5") + "}":                                                                0,
		replaced + zone("count_status 2xx"):                                                                               0,
		"route {\n" + zone("count_status 2xx") + replaced + "}":                                                           0,
		"route {\nintercept {\n@bad status 5xx\nreplace_status @bad 200\n}\n" + zone("count_status 2xx") + "}":            0,
		"intercept {\nhandle_response {\nroute {\n" + zone("count_status 2xx") + "respond x\n}\n}\n}\nrespond ok":         0,
		replaced + "error 503\nhandle_errors {\nroute {\n" + zone("count_status 2xx") + "respond x\n}\n}":                 0,
		"@a path /a\nroute @a {\n" + replaced + "}\n@b path /b\nroute @b {\n" + zone("count_status 2xx") + "respond x\n}": 0,
	} {
		warned(t, setup{site: site}, msg, want)
	}
}
