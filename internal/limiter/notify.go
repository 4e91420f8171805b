package limiter

import (
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/stores"
)

const eventReached = "rate_limit_reached"

// reportReached logs each percentage of notify that the last charge to a zone has reached, and
// emits its event, once.
func (q *request) reportReached(z *zoneResult) {
	if c := z.rules; c != nil && c.Counter.Notifies {
		q.reportUsed(z, c)
	}
}

func (q *request) reportUsed(z *zoneResult, c *stores.ZoneCheck) {
	for i := range c.Results {
		used := c.Results[i].TakeUsed()
		limit := c.Rules[i].Capacity()
		for _, percent := range z.set.From[i].Notify {
			if at := limit * int64(percent); 100*used[stores.Before] < at && at <= 100*used[stores.After] {
				q.notify(z, i, percent, limit, used[stores.After])
			}
		}
	}
}

// reportAllReached reports the percentages that a decision reached which is not the last one: a denied check, too, makes
// the charges of requests that have ended.
func (q *request) reportAllReached() {
	for i := range q.zones {
		q.reportReached(&q.zones[i])
	}
}

// notify reports that a percentage of a limit has been reached, unless there were too many such
// reports.
func (q *request) notify(z *zoneResult, rule, percent int, limit, used int64) {
	suppressed, ok := z.zone.common.reachedLog.Next(q.now(), maxLines)
	if !ok {
		return
	}
	fields := []zap.Field{
		zap.String("zone", z.zone.WrittenName()), zap.String("rule", z.set.Labels[rule]),
		zap.Int("percent", percent), zap.Int64("limit", limit), zap.Int64("used", used),
	}
	q.tell(z.zone, fields, suppressed, "rate limit reached", eventReached)
}
