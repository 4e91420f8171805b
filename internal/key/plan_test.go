package key

import (
	"strings"
	"testing"
)

// TestIdentity compares the identities of plans that are written differently: they are equal if
// only defaults, shorthands and the case of headers differ.
func TestIdentity(t *testing.T) {
	whole, host := 32, 64
	shorthands := strings.NewReplacer("{client_ip}", "{"+ClientIPPlaceholder+"}", "{header.", "{"+headerPlaceholder)
	identity := func(missing, repeated string, v4, v6 *int, parts ...string) string {
		p, err := NewPlan(parts, shorthands.Replace, missing, repeated, v4, v6)
		if err != nil {
			t.Fatal(err)
		}
		return p.Identity()
	}
	short := identity("", "", nil, nil, "{client_ip}", "a-{header.X-User}", "{body.user}")
	if long := identity(missingClientIP, repeatedDeny, &whole, &host,
		"{http.vars.client_ip}", "a-{http.request.header.x-user}", "{http.request.body.user}"); long != short {
		t.Errorf("%s with defaults and full names is %s: want them equal", short, long)
	}
	port := identity("", "", nil, nil, "{header.Host}")
	for _, same := range []string{"{header.host}", "{http.request.hostport}"} {
		if other := identity("", "", nil, nil, same); other != port {
			t.Errorf("%s with %s is %s: want them equal", port, same, other)
		}
	}
	joined := identity("", RepeatedJoin, nil, nil, "{header.X-User}")
	if lower := identity("", RepeatedJoin, nil, nil, "{header.x-user}"); lower != joined {
		t.Errorf("%s in lower case is %s: want them equal", joined, lower)
	}
	seen := map[string]int{short: -1, joined: -2}
	for i, other := range []string{
		identity("", "", nil, nil, "{client_ip}", "a-{header.X-User}"),
		identity("", "", nil, nil, "{client_ip}", "a-", "{header.X-User}", "{body.user}"),
		identity("", "", nil, nil, "{client_ip}", "a-http.request.header.X-User", "{body.user}"),
		identity(MissingShare, "", nil, nil, "{client_ip}", "a-{header.X-User}", "{body.user}"),
		identity("", RepeatedJoin, nil, nil, "{client_ip}", "a-{header.X-User}", "{body.user}"),
		identity("", "", new(int), nil, "{client_ip}", "a-{header.X-User}", "{body.user}"),
	} {
		if j, ok := seen[other]; ok {
			t.Errorf("%d and %d are both %s: want another", i, j, other)
		}
		seen[other] = i
	}
}
