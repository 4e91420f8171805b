package redis

import (
	"errors"
	"net"
	"regexp"

	goredis "github.com/redis/go-redis/v9"
)

// mayHaveRun says whether Redis may have run a call that failed, or a part of it, or may still run it. Such a
// call is neither repeated nor charged again. Of an answer that nobody knows it is true.
func mayHaveRun(err error) bool {
	switch {
	case errors.Is(err, errReply), errors.As(err, new(algorithmError)): // what precedes the error in the call has run
		return true
	case errors.Is(err, errOpen), errors.Is(err, errUnsent), errors.Is(err, errLate):
		return false
	case errors.As(err, new(dialError)), errors.As(err, new(earlyClose)), errors.As(err, new(unloaded)), isCut(err):
		return false
	}
	answered, is := errors.AsType[goredis.Error](err)
	return !is || !isUnrun(answered)
}

// isCut says whether a call could not be written to its end. Redis runs none of which it has a part.
func isCut(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "write"
}

// ofScript is in the errors of Lua in a script, with the line.
const ofScript = "user_script"

// unrun matches the answers that show that a call has changed nothing, each from its first letter to where nothing
// is left that a name in it, of a user or of a key, could say.
var unrun = []*regexp.Regexp{
	// What a server answers in place of running a script. KVRocks writes ERR before it.
	regexp.MustCompile(`^(ERR )?(NOSCRIPT|NOAUTH|WRONGPASS|LOADING|BUSY|DENIED|MASTERDOWN|MOVED|ASK|CROSSSLOT|CLUSTERDOWN|TRYAGAIN) `),
	regexp.MustCompile(`^NOPERM .*to run the '(evalsha|eval|script|script\|load)' command( or its subcommand)?$`),
	regexp.MustCompile(`^NOPERM (this user has no permissions to access one of the keys used as arguments|No permissions to access a key)$`),
	regexp.MustCompile(`(?i)^ERR (unknown|unsupported) command ['"\x60]?(evalsha|eval|script)\b`),

	// What it answers to the first write of a script, and to no later one. Redis 6 names the script before it.
	regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]+\): )?(@?user_script: ?[0-9]+: )*-?(OOM|MISCONF|READONLY|NOREPLICAS) `),

	// What proxies answer that have no connection to a server: Envoy, twemproxy, Predixy.
	regexp.MustCompile(`^(no upstream host|ERR (Connection refused|Host is down|No route to host|Network is unreachable)|ERR no server connection avaliable)$`), //nolint:misspell // so it is spelt
}

// isUnrun says whether an answer shows that a call has changed nothing.
func isUnrun(answered goredis.Error) bool {
	if _, alone := answered.(failedOp); alone { // it fails before its operation writes
		return true
	}
	for _, r := range unrun {
		if r.MatchString(answered.Error()) {
			return true
		}
	}
	return false
}
