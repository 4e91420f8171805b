package limiter

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/lib/pool"
)

// common is shared by the handlers with the same zone: its bounds are per zone. It survives
// reloads. The zero value is ready for use.
type common struct {
	queue        waitQueue
	logLimit     loglimit.Limit
	blockLog     loglimit.Limit
	reachedLog   loglimit.Limit
	shadowLog    loglimit.Limit
	overflowLog  loglimit.Minute
	duplicateLog loglimit.Minute
	unknownLog   loglimit.Minute
	beyondLog    loglimit.Minute
	unreadLog    loglimit.Minute
	unblockLog   loglimit.Minute
	proxyLog     atomic.Bool   // whether a proxy that is not trusted was told of
	proxyLooks   atomic.Uint32 // denials that may have come from one
	lingering    atomic.Int64  // requests that hold a permit though their client has left
	holds        atomic.Bool   // whether requests of a handler hold their cost, or reserve it for another store
}

// commons holds the common of each zone in use.
var commons pool.Pool[*common] = "zones" // by zoneID

// Destruct implements caddy.Destructor.
func (*common) Destruct() error { return nil }
