package limiter

import (
	"net/http"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/internal/lib/loglimit"
)

// maxLines is how many lines, and events, of a zone and kind there are per second, at most.
const maxLines = 100

// tell logs something that happened to the request in a zone, and emits its event. suppressed is how
// many lines there would have been since the last one.
func (q *request) tell(z *Zone, fields []zap.Field, suppressed uint64, text, event string) {
	fields = q.withKey(z, fields)
	if suppressed > 0 {
		fields = append(fields, zap.Uint64("suppressed", suppressed))
	}
	q.l.o.Logger.Info(text, fields...)
	q.emit(event, fields)
}

// emit emits an event with the fields of its log line.
func (q *request) emit(event string, fields []zap.Field) {
	if q.l.env.Listens(event) {
		data := zapcore.NewMapObjectEncoder()
		for _, f := range fields {
			f.AddTo(data)
		}
		q.l.env.Emit(event, data.Fields)
	}
}

// withKey returns the fields and, with log_key, the key of the request. Texts are escaped and cut.
func (q *request) withKey(z *Zone, fields []zap.Field) []zap.Field {
	if q.l.o.LogKey {
		fields = append(fields, zap.String("key", strings.Join(z.Describe(q.r), " ")))
	}
	for i := range fields {
		s := fields[i].String
		if len(s) > longestValue {
			s = strings.Clone(strings.ToValidUTF8(s[:longestValue], ""))
		}
		fields[i].String = loglimit.Escape(s)
	}
	return fields
}

// longestValue is the greatest size of a value of a log line or an event, in bytes. Events wait for
// their handlers in a queue, and clients choose the size of methods, hosts and keys.
const longestValue = 4096

// Describe returns the parts of the key of a request as text, for people.
func (z *Zone) Describe(r *http.Request) []string { return z.Config.Plan.Describe(r) }
