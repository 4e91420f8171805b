package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/loglimit"
	"github.com/dianalimiter/diana/rules"
)

// rulesTimeout is how long reading or writing a document may take.
const rulesTimeout = 10 * time.Second

// noDocument is shown for a source without a document: it means the same.
const noDocument = `{"zones": {}}`

// rulesState is the header of an answer with the document in force instead of the one in
// Redis, which has lost it.
const rulesState = "Rate-Limit-Rules"

// validate says whether the running configuration would take a document.
func (*API) validate(w http.ResponseWriter, r *http.Request, in *Instance) error {
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

func (in *Instance) validateRules(text []byte) (v cli.Validation) {
	d, err := rules.Parse(text)
	if err == nil {
		err = in.Registry.Check(d)
	}
	if err != nil {
		v.Error = loglimit.Short(err)
		var at *rules.Error
		if errors.As(err, &at) && strings.HasPrefix(v.Error, at.Pointer) {
			v.Pointer = at.Pointer
		}
		return v
	}
	return cli.Validation{Valid: true, Zones: len(d.Zones), Unknown: rules.FirstNames(in.Registry.Unknown(d))}
}

// rules serves the document in Redis, or replaces it.
func (*API) rules(w http.ResponseWriter, r *http.Request, in *Instance) error {
	if in.Follower == nil {
		return apiError(http.StatusNotFound, errors.New("no source of rules is configured: want rules redis"))
	}
	source, ok := in.Follower.Source().(*rules.Redis)
	if !ok {
		return apiError(http.StatusConflict, fmt.Errorf("the rules come from %s: want rules redis to read and write them here", in.Follower.Name()))
	}
	ctx, cancel := context.WithTimeout(r.Context(), rulesTimeout)
	defer cancel()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return in.getRules(ctx, w, source)
	case http.MethodPut:
		return in.putRules(ctx, w, r, source)
	}
	return wrongMethod(w, r, "GET, PUT")
}

// etag is the entity tag of a document; an empty one: there is none.
func etag(text []byte) string { return `"` + rules.Fingerprint(string(text)) + `"` }

// getRules answers the document in Redis. If Redis has lost it, its rules are still in force:
// a change that begins with them, and not with nothing, keeps them.
func (in *Instance) getRules(ctx context.Context, w http.ResponseWriter, source *rules.Redis) error {
	h := w.Header()
	text, err := source.Read(ctx)
	shown := text
	switch {
	case errors.Is(err, rules.ErrEmpty):
		shown = []byte(noDocument)
		if kept := in.Follower.Text(); kept != nil && in.Registry.Document() != nil {
			shown = kept
			h.Set(rulesState, "lost")
		}
	case err != nil:
		return rulesError(err)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("ETag", etag(text))
	_, err = w.Write(shown)
	return err
}

// putRules replaces the document by the one in the body, if the document is one that
// If-Match names.
func (in *Instance) putRules(ctx context.Context, w http.ResponseWriter, r *http.Request, source *rules.Redis) error {
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
	err = source.Replace(ctx, text, func(old []byte) bool { return matches(match, old) })
	if err != nil {
		return rulesError(err)
	}
	in.Logger.Info("the document of the rules was replaced at the admin endpoint", zap.Int("zones", v.Zones), zap.String("etag", etag(text)))
	w.Header().Set("ETag", etag(text))
	return answerJSON(w, v)
}

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
func rulesError(err error) error {
	switch {
	case errors.Is(err, rules.ErrChanged):
		return apiError(http.StatusPreconditionFailed, err)
	case errors.Is(err, rules.ErrWrongType):
		return apiError(http.StatusConflict, err)
	case !errors.Is(err, rules.ErrTooLarge) && !errors.As(err, new(goredis.Error)): // Redis has not answered
		err = fmt.Errorf("the rules cannot be read or changed while their Redis is away, and those in force stay: %w", err)
	}
	return apiError(http.StatusServiceUnavailable, err)
}
