package test

import (
	"regexp"
	"strings"
	"testing"
)

// TestWorkflows checks what others can trust of a release: every action is pinned to a commit, no
// workflow may write by default, and the release signs the files and the image that
// .github/RELEASING.md verifies, with the identity that it names.
func TestWorkflows(t *testing.T) {
	pinned := regexp.MustCompile(`^(?:\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	actions := 0
	for _, file := range glob(t, ".github/workflows/*.yml") {
		text := textOf(t, file)
		for _, uses := range regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`).FindAllStringSubmatch(text, -1) {
			if actions++; !pinned.MatchString(uses[1]) {
				t.Errorf("%s: %s is not pinned to a commit with its version", file, uses[1])
			}
		}
		if !regexp.MustCompile(`(?m)^permissions:(?: \{\}|\n  contents: read\n(?:\S|\n))`).MatchString(text) {
			t.Errorf("%s: no permissions of the whole workflow, or more than reading", file)
		}
	}
	if actions < 10 {
		t.Errorf("%d actions: the pattern finds few", actions)
	}

	release, commands := textOf(t, ".github/workflows/release.yml"), textOf(t, ".github/RELEASING.md")
	if strings.Count(release, "attest-build-provenance@") != 2 {
		t.Error("the binaries and the image want a provenance each")
	}
	for _, both := range []string{"checksums.txt.sigstore.json", "cosign sign", "cosign verify"} {
		if in := strings.Replace(both, "verify", "sign", 1); !strings.Contains(release, in) || !strings.Contains(commands, strings.Replace(in, "cosign sign", "cosign verify", 1)) {
			t.Errorf("%s is signed or verified, not both", both)
		}
	}
	for _, identity := range regexp.MustCompile(`--certificate-identity (\S+)`).FindAllStringSubmatch(commands, -1) {
		if want := "/.github/workflows/release.yml@refs/tags/v1.2.3"; !strings.HasSuffix(identity[1], want) {
			t.Errorf("identity %s, want one that ends with %s", identity[1], want)
		}
	}
	for _, command := range []string{".ci/reproduce", ".ci/release", ".ci/build-release"} {
		textOf(t, command)
	}
}
