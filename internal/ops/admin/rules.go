package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/edit"
	"github.com/dianalimiter/diana/internal/ops/running"
	"github.com/dianalimiter/diana/rules"
)

// rulesTimeout is how long reading or writing a document may take.
const rulesTimeout = 10 * time.Second

// validate says whether the running configuration would take a document.
func (*API) validate(w http.ResponseWriter, r *http.Request, in documents) error {
	if r.Method != http.MethodPost {
		return wrongMethod(w, r, "POST")
	}
	text, err := documentIn(w, r)
	if err != nil {
		return err
	}
	return answerJSON(w, in.validateRules(text))
}

// documentIn reads a document from the body of a request.
func documentIn(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkJSON(r); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rules.MaxSize))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, apiError(http.StatusRequestEntityTooLarge, fmt.Errorf("over %d bytes: want a smaller document", rules.MaxSize))
	case err != nil:
		return nil, apiError(http.StatusBadRequest, err)
	}
	return text, nil
}

func (in documents) validateRules(text []byte) (v cli.Validation) {
	d, err := rules.Parse(text)
	if err == nil {
		err = in.Registry.Check(d)
	}
	if err == nil {
		err = in.unread(d)
	}
	if err != nil {
		v.Error = loglimit.Short(err)
		var at *config.Error
		if errors.As(err, &at) && strings.HasPrefix(v.Error, at.Pointer) {
			v.Pointer = at.Pointer
		}
		return v
	}
	return cli.Validation{Valid: true, Zones: len(d.Zones), Unknown: follow.FirstNames(in.Registry.Unknown(d))}
}

// unread returns an error if a document has exceptions, and an instance that is alive cannot read
// them.
func (in documents) unread(d *config.Document) error {
	for _, z := range d.Zones {
		if z == nil || z.Exceptions == nil {
			continue
		}
		for _, s := range in.Stores {
			if s := s.Status(); s.Readers < s.Instances {
				return config.At("/zones", fmt.Errorf("%d of %d instances of store %s cannot read exceptions, and would reject the whole document: upgrade them first", s.Instances-s.Readers, s.Instances, s.Name))
			}
		}
	}
	return nil
}

// addSource says which line to add where no document can be written.
func addSource() string {
	return "add rules redis diana:rules (with store redis), or rules file <path>, to " + names.Usual() + " in the global options"
}

// writer returns the source of rules, if its document can be written.
func (in documents) writer() (rules.Writer, error) {
	if in.Follower == nil {
		return nil, apiError(http.StatusNotFound, errors.New("no source of rules is configured, so that none can be read or written: "+addSource()))
	}
	source, ok := in.Follower.Source().(rules.Writer)
	if !ok {
		return nil, apiError(http.StatusConflict, fmt.Errorf("the rules come from %s, which is not written from here: change them there, or %s instead", in.Follower.Name(), addSource()))
	}
	return source, nil
}

// rules serves the document, or replaces it; its changes; and edits, which write nothing.
func (*API) rules(w http.ResponseWriter, r *http.Request, in documents, what string) error {
	source, err := in.writer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), rulesTimeout)
	defer cancel()
	switch r.Method + " " + what {
	case "GET ", "HEAD ":
		return in.getRules(ctx, w, source)
	case "PUT ":
		return in.putRules(ctx, w, r, source)
	case "GET changes":
		past, err := source.Past(ctx)
		if err != nil {
			return rulesError(source, err)
		}
		return answerJSON(w, cli.Changes{Changes: past.Changes, Previous: string(past.Previous)})
	case "POST edit":
		return in.editRules(ctx, w, r, source)
	}
	return wrongMethod(w, r, map[string]string{"": "GET, PUT", "changes": "GET", "edit": "POST"}[what])
}

// editRules answers the document as edits would change it. Nothing is written.
func (in documents) editRules(ctx context.Context, w http.ResponseWriter, r *http.Request, source rules.Writer) error {
	body, err := documentIn(w, r)
	if err != nil {
		return err
	}
	var edits []edit.Edit
	if err = rules.CheckUTF8(body); err == nil {
		err = json.Unmarshal(body, &edits)
	}
	if err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("%w: want a list of edits, such as [{\"do\": \"shadow\", \"zone\": \"api\", \"words\": [\"on\"]}]", err))
	}
	text, tag, lost, err := in.readRules(ctx, source)
	if err != nil {
		return err
	}
	past, err := source.Past(ctx)
	if err != nil {
		return rulesError(source, err)
	}
	answer := cli.Edited{ETag: tag, What: said(edits, past.Changes), Note: in.noteOn(edits)}
	after, err := edit.Apply(in.base(text, past.Previous), edits)
	if err == nil {
		var before []byte // none of a document that is lost: also an empty one is a change, which ends its rules
		if !lost {
			before, err = edit.Canonical(text)
		}
		answer.Before, answer.After = string(before), string(after)
	}
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	answer.Validation = in.validateRules(after)
	return answerJSON(w, answer)
}

// said returns edits as the list of changes has them.
func said(edits []edit.Edit, past []rules.Change) string {
	list := make([]string, len(edits))
	for i, e := range edits {
		if list[i] = e.String(); e.Do != "undo" || len(past) == 0 {
			continue
		}
		if again, is := strings.CutPrefix(past[0].What, "undo: "); is {
			list[i] = "redo: " + again
		} else {
			list[i] = "undo: " + strings.TrimPrefix(past[0].What, "redo: ")
		}
	}
	return strings.Join(list, "; ")
}

// noteOn says which edits block a key of a zone that denies nothing, and which change the rate of keys that
// may be overdrawn.
func (in documents) noteOn(edits []edit.Edit) string {
	for _, e := range edits {
		if z := in.Registry.Zone(e.Zone); e.Do == "block" && z != nil && z.Status().Shadow {
			return fmt.Sprintf("zone %s is in shadow: it denies nothing, blocked keys neither, until it is enforced (shadow %s off)", e.Zone, e.Zone)
		} else if e.Do == "set" && z != nil && overdrawn(z) {
			return fmt.Sprintf("zone %s: a key that responses have overdrawn is denied until what it owes has drained, at the higher of the old and the new rate; reset %s <part>... frees it", e.Zone, e.Zone)
		}
	}
	return ""
}

// overdrawn reports whether keys of a zone may owe for longer than a full burst takes to refill.
func overdrawn(z *limiter.Zone) bool {
	if !z.Zone.Settles() {
		return false
	}
	set := z.Status().Rules
	for i, alg := range set.Algorithms {
		rule, err := alg.Compile(set.Specs[i])
		if _, refills := rule.(algorithms.Refilling); err == nil && refills {
			return true
		}
	}
	return false
}

// base returns what edits of a document begin with, and what undoes the last; nil: nothing does.
func (in documents) base(document, previous []byte) edit.Base {
	return edit.Base{Document: document, Previous: previous, Zone: in.editedZone, Zones: in.Registry.Names, Now: time.Now()}
}

// editedZone returns what an edit has to know of a zone; nil: there is none.
func (in documents) editedZone(name string) *edit.Zone {
	z := in.Registry.Zone(name)
	if z == nil {
		return nil
	}
	e := &edit.Zone{Parts: len(z.KeyParts()), Shadow: z.Zone.Shadow}
	for _, r := range answerRules(z.Status().Rules) {
		e.Rules = append(e.Rules, edit.Rule{Algorithm: r.Algorithm, Config: r.Config})
	}
	return e
}

// Set returns a document with another rate of a zone, as the words of the command set.
func Set(in *running.Instance, document []byte, zone string, words []string) ([]byte, error) {
	return edit.Apply(documents{in}.base(document, nil), []edit.Edit{{Do: "set", Zone: zone, Words: words}})
}

// etag is the entity tag of a document; an empty one: there is none.
func etag(text []byte) string { return `"` + rules.Fingerprint(string(text)) + `"` }

// readRules returns the document with its entity tag. If the source has lost it, its rules are
// still in force: a change that begins with them, and not with nothing, keeps them.
func (in documents) readRules(ctx context.Context, source rules.Writer) (text []byte, tag string, lost bool, err error) {
	text, err = source.Fetch(ctx)
	tag = etag(text)
	switch {
	case errors.Is(err, rules.ErrEmpty):
		if kept := in.Follower.Text(); kept != nil && in.Registry.Document() != nil {
			return kept, tag, true, nil
		}
		return []byte(rules.NoDocument), tag, false, nil
	case err != nil:
		return nil, "", false, rulesError(source, err)
	}
	return text, tag, false, nil
}

// getRules answers the document.
func (in documents) getRules(ctx context.Context, w http.ResponseWriter, source rules.Writer) error {
	text, tag, lost, err := in.readRules(ctx, source)
	if err != nil {
		return err
	}
	h := w.Header()
	if lost {
		h.Set(cli.RulesState, cli.RulesLost)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("ETag", tag)
	_, err = w.Write(text)
	return err
}

// putRules replaces the document by the one in the body, if the document is one that
// If-Match names.
func (in documents) putRules(ctx context.Context, w http.ResponseWriter, r *http.Request, source rules.Writer) error {
	match := strings.TrimSpace(strings.Join(r.Header.Values("If-Match"), ","))
	if match == "" {
		return apiError(http.StatusPreconditionRequired, errors.New("no If-Match: want the ETag of the document that is to be replaced, or *"))
	}
	text, err := documentIn(w, r)
	if err != nil {
		return err
	}
	v := in.validateRules(text)
	if !v.Valid {
		return answerStatus(w, http.StatusUnprocessableEntity, v)
	}
	c := changeIn(r.URL.Query())
	err = source.Replace(ctx, text, c, func(old []byte) bool { return matches(match, old) })
	if err != nil {
		return rulesError(source, err)
	}
	in.Logger.Info("the document of the rules was replaced at the admin endpoint", zap.Int("zones", v.Zones), zap.String("etag", etag(text)),
		zap.String("who", c.Who), zap.String("why", c.Why), zap.String("what", c.What))
	if now, err := source.Fetch(ctx); err == nil { // before the answer: this process may end at once, and Redis forget it
		in.Follower.Document(now)
	}
	w.Header().Set("ETag", etag(text))
	return answerJSON(w, v)
}

// changeIn returns what the parameters who, why and what say of a change.
func changeIn(q url.Values) rules.Change {
	short := func(name string) string {
		text := strings.ToValidUTF8(q.Get(name), "?")
		return strings.ToValidUTF8(text[:min(len(text), maxSaid)], "")
	}
	return rules.Change{At: time.Now().UTC().Truncate(time.Second), Who: short("who"), Why: short("why"), What: short("what")}
}

// maxSaid is the recorded length of each text that describes a change, in bytes.
const maxSaid = 500

// matches reports whether an If-Match names a document (RFC 9110, section 13.1.1).
func matches(match string, text []byte) bool {
	if match == "*" {
		return true
	}
	tag := etag(text)
	for other := range strings.SplitSeq(match, ",") {
		if strings.TrimSpace(other) == tag {
			return true
		}
	}
	return false
}

// rulesError returns an error of reading or writing the document.
func rulesError(source rules.Writer, err error) error {
	r, remote := source.(rules.Remote)
	switch {
	case errors.Is(err, rules.ErrChanged):
		return apiError(http.StatusPreconditionFailed, err)
	case errors.Is(err, rules.ErrWrongType):
		return apiError(http.StatusConflict, err)
	case remote && !errors.Is(err, rules.ErrTooLarge) && !r.Answered(err):
		err = fmt.Errorf("the rules cannot be read or changed while their Redis is unavailable; those in force stay: %w", err)
	}
	return apiError(http.StatusServiceUnavailable, err)
}

// Enforce returns a document with all zones out of shadow.
func Enforce(in *running.Instance, document []byte) ([]byte, error) {
	var edits []edit.Edit
	known := make(map[string]bool)
	for _, z := range in.Registry.Zones() {
		if !known[z.Name] && z.InShadow() {
			known[z.Name] = true
			edits = append(edits, edit.Edit{Do: "shadow", Zone: z.Name, Words: []string{"off"}})
		}
	}
	return edit.Apply(documents{in}.base(document, nil), edits)
}
