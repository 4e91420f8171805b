package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dianalimiter/diana/internal/ops/edit"
)

// changer shows the effect of a change of the rules, asks for confirmation, and writes it.
type changer struct {
	*adminClient
	yes    bool   // without asking
	reason string // recorded with the change
	in     io.Reader
}

// document is the document of the rules.
type document struct {
	text []byte // see readable
	tag  string // its entity tag
	lost bool   // the source has lost it; its rules are still in force
}

// RulesState is the header of an answer with the document in force instead of the one of the
// source, which has lost it, and RulesLost its value.
const (
	RulesState = "Rate-Limit-Rules"
	RulesLost  = "lost"
)

// addChanges adds the commands that change rules.
func addChanges(c *adminClient, root *cobra.Command, add adder) {
	w := &changer{adminClient: c}
	flags := func(cmd *cobra.Command, example string) *cobra.Command {
		cmd.Flags().BoolVarP(&w.yes, "yes", "y", false, "Write without asking")
		cmd.Flags().StringVar(&w.reason, "reason", "", "Reason for the change, for rules log")
		cmd.Example = example
		cmd.PreRun = func(cmd *cobra.Command, _ []string) { w.in = cmd.InOrStdin() }
		return cmd
	}
	edits := func(do string, use, short, example string, least int) *cobra.Command {
		return flags(add(do+" "+use, short, cobra.MinimumNArgs(least), func(args []string) error {
			return w.edit(edit.Edit{Do: do, Zone: args[0], Words: args[1:], Until: until(do, args[1:]), Who: who(), Why: w.reason})
		}), example)
	}
	var block string
	set := flags(add("set <zone> [<rule>] <rate> [burst <n>]", "Changes a limit on all instances; with configured instead of a rate, removes all that the document has of the zone, exceptions too", cobra.MinimumNArgs(2), func(args []string) error {
		if block != "" {
			args = append(append(args, "block"), strings.Fields(block)...)
		}
		return w.edit(edit.Edit{Do: "set", Zone: args[0], Words: args[1:]})
	}), "  caddy rate-limit set api 200/1m\n  caddy rate-limit set api per_second 20/s burst 40 --reason \"launch\"\n  caddy rate-limit set login 5/1m --block 1h\n  caddy rate-limit set api configured")
	set.Flags().StringVar(&block, "block", "", "How long a denial blocks the key, such as 1h, or \"1m 10m 1h\" if each block is longer than the last (0: no block)")
	shadow := edits("shadow", "<zone>|--all on|off", "Makes a zone report denials but deny nothing, on all instances", "  caddy rate-limit shadow search on\n  caddy rate-limit shadow --all off", 1)
	off := edits("off", "<zone>|--all", "Turns a zone off on all instances: requests pass uncounted", "  caddy rate-limit off signup\n  caddy rate-limit off --all --reason \"incident\"", 0)
	on := edits("on", "<zone>|--all", "Turns a zone on again on all instances", "  caddy rate-limit on --all", 0)
	for _, cmd := range []*cobra.Command{shadow, off, on} {
		forAll(cmd)
	}
	edits("block", "<zone> <part>... <duration>", "Denies all requests of a key for a duration or until a time, on all instances", "  caddy rate-limit block api 192.0.2.1 1h\n  caddy rate-limit block api 192.0.2.1 until friday\n  caddy rate-limit block api 192.0.2.0/24 2027-01-01T18:00", 3)
	edits("allow", "<zone> <part>... [<rate>] [<duration>]", "Admits all requests of a key, or sets its rate, until unblock, for a duration or until a time", "  caddy rate-limit allow api customer-7 3d\n  caddy rate-limit allow api customer-7 5000/1m 2027-01-01T12:00:00Z", 2)
	edits("unblock", "<zone> <part>...", "Removes what block or allow set for a key", "  caddy rate-limit unblock api 192.0.2.1", 2)
	rules := &cobra.Command{Use: "rules", Short: "Reads and changes the document of rules in Redis or a file"}
	rejectOthers(rules)
	root.AddCommand(rules)
	sub := func(use, short, example string, args cobra.PositionalArgs, run func(args []string) error) *cobra.Command {
		cmd := add(use, short, args, run)
		root.RemoveCommand(cmd)
		rules.AddCommand(cmd)
		cmd.Example = example
		return cmd
	}
	sub("get", "Prints the document", "  caddy rate-limit rules get >rules.json", cobra.NoArgs, func([]string) error { return w.get() })
	sub("diff [<file>]", "Shows what a document (- is stdin) would change, or else what the last change changed", "  caddy rate-limit rules diff rules.json", cobra.MaximumNArgs(1), w.diff)
	sub("log", "Lists the last 50 changes: when, who (as the client claims), what and why", "  caddy rate-limit rules log", cobra.NoArgs, func([]string) error { return w.log() })
	flags(sub("put <file>", "Replaces the document with a file (- is stdin)", "", cobra.ExactArgs(1), func(args []string) error { return w.put(args[0]) }), "  caddy rate-limit rules put rules.json --yes")
	flags(sub("edit", "Opens the document in $VISUAL or $EDITOR, and writes it when the editor exits", "", cobra.NoArgs, func([]string) error { return w.editor() }), "  EDITOR=nano caddy rate-limit rules edit")
	flags(sub("undo", "Restores the document before the last change; after another undo, that is to redo it", "", cobra.NoArgs, func([]string) error { return w.edit(edit.Edit{Do: "undo"}) }), "  caddy rate-limit rules undo")
}

// until returns the time at the end of words as it reads here, unless it is a duration: that
// begins where the edit is applied.
func until(do string, words []string) (t time.Time) {
	if end, _, lasts := edit.Ending(words, time.Now()); (do == "block" || do == "allow") && !lasts {
		t = end
	}
	return t
}

// forAll adds the flag --all, which stands for a zone.
func forAll(cmd *cobra.Command) {
	all := cmd.Flags().Bool("all", false, "All zones; overrides the setting of each zone")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all {
			args = append([]string{"*"}, args...)
		} else if len(args) == 0 {
			return errors.New("want the name of a zone, or --all")
		}
		return run(cmd, args)
	}
}

// completeZone completes the name of a zone.
func (c *adminClient) completeZone(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	var zones Zones
	if len(args) == 0 {
		if _, _, err := c.send(http.MethodGet, "zones", nil, nil, &zones); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
	}
	for _, z := range zones.Zones {
		names = append(names, z.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// edit makes an edit.
func (w *changer) edit(e edit.Edit) error {
	body, err := json.Marshal([]edit.Edit{e})
	if err != nil {
		return err
	}
	var answer Edited
	if _, _, err := w.send(http.MethodPost, "rules/edit", nil, bytes.NewReader(body), &answer); err != nil {
		return err
	}
	if !answer.Valid {
		return errors.New(answer.Error)
	}
	if answer.Note != "" && !w.json {
		fmt.Fprintln(w.out, "note: "+answer.Note)
	}
	return w.write(document{text: []byte(answer.Before), tag: answer.ETag}, []byte(answer.After), answer.What)
}

// current reads the document.
func (w *changer) current() (raw []byte, d document, err error) {
	raw, header, err := w.send(http.MethodGet, "rules", nil, nil, nil)
	if err == nil && header.Get("ETag") == "" {
		err = errors.New("the answer has no ETag: it is not from Caddy's admin endpoint")
	}
	return raw, document{readable(raw), header.Get("ETag"), header.Get(RulesState) == RulesLost}, err
}

// readable returns a document in the form of [edit.Canonical]. One that is invalid stays as it is, so
// that it can be seen and replaced.
func readable(text []byte) []byte {
	if canonical, err := edit.Canonical(text); err == nil {
		return canonical
	}
	return text
}

func (w *changer) get() error {
	raw, _, err := w.current()
	if err == nil {
		_, err = w.out.Write(raw)
	}
	return err
}

func (w *changer) diff(args []string) error {
	if w.json {
		return errors.New("--json: a difference is no JSON: want rules get, or no --json")
	}
	_, d, err := w.current()
	if err != nil {
		return err
	}
	before, after := d.text, d.text
	if len(args) == 1 {
		after, err = readDocument(args[0])
	} else {
		var past Changes
		if _, _, err = w.send(http.MethodGet, "rules/changes", nil, nil, &past); err == nil && past.Previous == "" {
			return errors.New("no change was recorded before the present document: want a file")
		}
		before = readable([]byte(past.Previous))
	}
	if err == nil {
		after, err = edit.Canonical(after)
	}
	if err == nil && !difference(w.out, before, after) {
		fmt.Fprintln(w.out, "no difference")
	}
	return err
}

func (w *changer) log() error {
	return show(w.adminClient, w.send, http.MethodGet, "rules/changes", nil, new(Changes), "changes")
}

func (w *changer) put(path string) error {
	text, err := readDocument(path)
	if err != nil {
		return err
	}
	_, before, err := w.current()
	if err != nil {
		return err
	}
	return w.write(before, text, "rules put")
}

// editor opens the document in the user's editor, and writes the result.
func (w *changer) editor() error {
	_, before, err := w.current()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "rules-*.json")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(before.text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	words := strings.Fields(cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi"))
	cmd := exec.Command(words[0], append(words[1:], file.Name())...) //nolint:gosec // the user's own editor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", words[0], err)
	}
	after, err := readDocument(file.Name())
	if err != nil {
		return err
	}
	return w.write(before, after, "rules edit")
}

// write shows the difference, asks, and replaces the document if it is still the one before.
func (w *changer) write(before document, text []byte, what string) error {
	after, err := edit.Canonical(text)
	if err != nil {
		return err
	}
	if before.lost {
		before.text = nil
	}
	out := w.out
	if w.json {
		out = io.Discard
	}
	if !difference(out, before.text, after) {
		if w.json {
			return show(w.adminClient, w.send, http.MethodPost, "rules/validate", bytes.NewReader(text), new(Validation), "validation")
		}
		fmt.Fprintln(out, "nothing changes")
		return nil
	}
	if !w.yes {
		fmt.Fprint(w.out, "Write this for all instances? [y/N] ")
		line, err := bufio.NewReader(w.in).ReadString('\n')
		if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
			if err != nil {
				fmt.Fprintln(w.out)
			}
			return errors.New("nothing was written: answer y, or say --yes")
		}
	}
	q := url.Values{"who": {who()}, "why": {w.reason}, "what": {what}}
	var v Validation
	answer, _, err := w.send(http.MethodPut, "rules?"+q.Encode(), http.Header{"Content-Type": {"application/json"}, "If-Match": {before.tag}}, bytes.NewReader(text), &v)
	switch {
	case err != nil:
		return err
	case w.json:
		_, err = w.out.Write(answer)
		return err
	}
	return printAnswer(w.out, "written", &v)
}

// who returns who changes the rules, as this machine says.
func who() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty after an error
	return name + "@" + cmp.Or(host, "unknown")
}
