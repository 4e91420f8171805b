package redis

import (
	"errors"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/stores"
)

// knownAnswer is an error that Redis returns, known by its first word or by a
// part of it, and what an operator can do about it.
type knownAnswer struct {
	words  []string
	class  stores.Failure
	advice string
}

// An error of a command in the script may follow other words, after a dash.
var refusals = []knownAnswer{
	{[]string{"OOM"}, stores.FailRejected, "Redis' memory is full: raise its maxmemory, or find what fills it"},
	{[]string{"MISCONF"}, stores.FailRejected, "Redis cannot save to its disk and accepts no writes: check its log and its disk"},
	{[]string{"NOAUTH"}, stores.FailRejected, "Redis requires a password: set password, and username if it has users; if they are set, it lacks HELLO and AUTH: do not rename those in docs/redis.md"},
	{[]string{"WRONGPASS"}, stores.FailRejected, "Redis rejects the password: check username and password, and that the user is on"},
	{[]string{"NOPERM"}, stores.FailRejected, missingRight},
	{[]string{"NOREPLICAS"}, stores.FailRejected, "Redis has fewer replicas than its min-replicas-to-write: check the replicas"},
	{[]string{"BUSY"}, stores.FailRejected, "a script blocks Redis: find out whose it is; SCRIPT KILL ends it"},
	{[]string{"DENIED"}, stores.FailRejected, "Redis is in protected mode, which rejects other hosts: give it a password and set password here, or set bind or protected-mode there"},
	{[]string{"MOVED", "ASK"}, stores.FailRejected, notClustered},
	{[]string{"CROSSSLOT"}, stores.FailWrong, notClustered},
	{[]string{"LOADING"}, stores.FailAway, "Redis is loading its data: it is used again when it is ready"},
	{[]string{"READONLY"}, stores.FailAway, "this Redis is a replica: give the master's address, or write sentinel or cluster into the store's block"},
	{[]string{"MASTERDOWN"}, stores.FailAway, lostMaster},
	{[]string{"CLUSTERDOWN", "TRYAGAIN"}, stores.FailAway, "the Cluster does not serve all slots: redis-cli --cluster check shows which"},
}

// phrases are errors that do not begin with a word of their own.
var phrases = []knownAnswer{
	{[]string{"can't run this command", "executing script can't", "No permissions", "ACL failure in script"}, stores.FailRejected, missingRight},
	{[]string{"Unknown Redis command called from", "Unknown command called from"}, stores.FailRejected, lacksCommand},
	{[]string{"max number of clients"}, stores.FailRejected, "Redis has too many clients: raise its maxclients, or lower pool_size"},
	{[]string{"global variable 'struct'", "index global 'struct'"}, stores.FailRejected, "the Lua of this server has no struct: " + needed},
	{[]string{"after non deterministic commands"}, stores.FailRejected, "this server is too old: " + needed},
	{[]string{"without any password configured", "no password is set"}, stores.FailRejected, "Redis has no password: leave password out, or set one there"},
	{[]string{"on a stale replica"}, stores.FailAway, lostMaster},
	{[]string{"cluster support disabled"}, stores.FailRejected, "this Redis is not a Cluster: leave cluster out, or give the addresses of a Cluster"},
	{[]string{"SELECT is not allowed in cluster mode"}, stores.FailRejected, notClustered + ", without db"},
	{[]string{"DB index is out of range", "invalid DB index"}, stores.FailRejected, "Redis has no database of this number: lower db, or raise databases there"},
	{[]string{"unknown command 'sentinel'", "unknown command `sentinel`", "unknown command 'SENTINEL'"}, stores.FailRejected, "this is no Sentinel: leave sentinel out, or give the addresses of the Sentinels"},
	{[]string{string(goredis.Nil)}, stores.FailRejected, "the Sentinels know no master of this name: give sentinel the name in their configuration"},
	{[]string{"unknown command 'eval'", "unknown command `eval`", "unknown command 'evalsha", "unknown command 'EVALSHA", "unknown command `evalsha", "unknown command 'script", "unknown command 'SCRIPT", "unknown command `script", "unknown subcommand", "Unknown subcommand"}, stores.FailRejected, lacksScript},
	{[]string{"unknown command"}, stores.FailRejected, "this server lacks the command that the error names: do not rename those in docs/redis.md; if a proxy is in front of Redis, give the address of Redis; otherwise, " + needed},
	{[]string{saysTLS}, stores.FailRejected, "this port of Redis expects TLS: write tls into the store's block, or give its port without"},
}

// connecting are errors of connections, none of which Redis returns.
var connecting = []knownAnswer{
	{[]string{"no TLS handshake in time"}, stores.FailTimeout, "this server does not answer in TLS: leave tls out, or give its port with TLS; if only the Sentinels do not, write plain into the sentinel block; if it is slow, raise timeout and dial_timeout"},
	{[]string{"does not look like a TLS handshake"}, stores.FailAway, "this server does not speak TLS: leave tls out, or give its port with TLS; if only the Sentinels do not, write plain into the sentinel block"},
	{[]string{"x509: certificate signed by unknown authority", "x509: certificate is not trusted"}, stores.FailAway, "no authority that is trusted has signed the server's certificate: set ca in tls to the certificate of the one that has"},
	{[]string{"x509: certificate is valid for", "x509: cannot validate certificate for", "x509: certificate is not valid for", "x509: certificate relies on legacy"}, stores.FailAway, "the server's certificate is for another name: set server_name in tls to one in it, or give the address with that name"},
	{[]string{"x509: certificate has expired"}, stores.FailAway, "the server's certificate has expired, or is not valid yet: renew it, or look at this host's clock"},
	{[]string{"x509: "}, stores.FailAway, "the server's certificate is not accepted: look at the error, and at ca and server_name in tls"},
	{[]string{"remote error: tls: "}, stores.FailRejected, "the server rejects the TLS connection: set cert and key in tls to a client certificate that it trusts"},
	{[]string{aloneThough}, stores.FailTimeout, raise},
	{[]string{"permission denied", "operation not permitted"}, stores.FailAway, "this host does not let Caddy connect: of a socket, let the user that runs Caddy read and write it (unixsocketperm 770 in Redis, and its group); otherwise look at the firewall of this host"},
	{[]string{"no such file or directory"}, stores.FailAway, "there is no socket at this path: see that Redis runs, and that unixsocket in its configuration is the same"},
	{[]string{"no such host", "server misbehaving"}, stores.FailAway, "the name of the host is not known: see that the address is right, and ask this host's DNS for it"},
	{[]string{"too many open files"}, stores.FailAway, "Caddy has opened as many files as it may: raise its limit (LimitNOFILE in systemd), or lower pool_size"},
	{[]string{"cannot assign requested address"}, stores.FailAway, "this host has no free port or no address for the connection: look at its network, and at what opens so many connections"},
	{[]string{"network is unreachable", "no route to host", "host is down"}, stores.FailAway, "there is no way to this address: look at the network and its firewalls, and see that the address is right"},
	{[]string{"connection refused"}, stores.FailAway, "nothing listens at this address: see that Redis runs, that its bind and port allow this host, and that the address is right"},
	{[]string{"redis: can't parse", "redis: invalid reply"}, stores.FailAway, "what answers there is not Redis: see that the address and the port are right"},
}

const (
	needed       = "Diana needs Redis 6.2 or newer, or Valkey"
	notClustered = "Redis is a Cluster: write cluster into the store's block"
	missingRight = "the user lacks a permission: grant those in Diana's docs/redis.md; ACL LOG in Redis shows which is missing"
	lacksCommand = "this server lacks a command of Diana's script: do not rename those in docs/redis.md; " + needed
	lacksScript  = "this server has no EVALSHA or SCRIPT: if it is a Sentinel, write sentinel into the store's block; if it is a Redis, do not rename them; otherwise, " + needed
	ofSentinels  = "all sentinels" // in the error of go-redis if none of them names the master
	lostMaster   = "this Redis is a replica that has lost its master: give the master's address, or write sentinel or cluster into the store's block"

	sentinelLogin = "the Sentinels do not accept the login, which is not that of Redis: set username and password in the sentinel block, or leave them out there if the Sentinels have none"
)

// isOfLogin reports whether a server answers so to a login, or to who has not logged in.
func isOfLogin(answer error) bool {
	return refusesLogin(answer) || strings.Contains(answer.Error(), "password")
}

// findAnswer returns the entry for an answer of Redis.
func findAnswer(text string) *knownAnswer {
	for i := range refusals {
		for _, w := range refusals[i].words {
			if strings.HasPrefix(text, w+" ") || strings.Contains(text, "-"+w+" ") {
				return &refusals[i]
			}
		}
	}
	return findPhrase(phrases, text)
}

// findPhrase returns the first of all that has a part of a text.
func findPhrase(all []knownAnswer, text string) *knownAnswer {
	for i := range all {
		if slices.ContainsFunc(all[i].words, func(part string) bool { return strings.Contains(text, part) }) {
			return &all[i]
		}
	}
	return nil
}

// advised is an error with what an operator can do about it.
type advised struct {
	error
	advice string
}

// advise adds to an error what an operator can do about it.
func advise(f stores.Failure, err error) error { return advised{err, advice(f, err)} }

// Unwrap returns the error itself.
func (e advised) Unwrap() error { return e.error }

// Advice returns what an operator can do about the error.
func (e advised) Advice() string { return e.advice }

// advice returns what an operator can do about a failure.
func advice(f stores.Failure, cause error) string {
	if wrong, ok := errors.AsType[algorithmError](cause); ok {
		return "the Lua of the algorithm " + strings.Join(wrong.names, " or ") + " fails: tell its author, or use another; this instance decides its rules without Redis meanwhile"
	}
	if answered, ok := errors.AsType[goredis.Error](cause); ok {
		if strings.Contains(cause.Error(), ofSentinels) && isOfLogin(answered) {
			return sentinelLogin
		}
		if r := findAnswer(answered.Error()); r != nil {
			return r.advice
		}
	}
	if r := findPhrase(connecting, cause.Error()); r != nil {
		return r.advice
	}
	if closed, ok := errors.AsType[earlyClose](cause); ok {
		if r := findAnswer(closed.said); r != nil {
			return r.advice
		}
		return "Redis takes connections and closes them: if this port expects TLS, write tls into the store's block, and set cert and key if the server asks for a client's certificate; it may also have reached its maxclients (raise that, or lower pool_size), be shutting down, or be a proxy without HELLO, such as twemproxy (give the address of Redis)"
	}
	return adviceOnClass(f, cause)
}

// adviceOnClass returns what an operator can do about a failure of which no more is known.
func adviceOnClass(f stores.Failure, cause error) string {
	switch {
	case f == stores.FailTimeout:
		return "Redis did not answer within the store's timeout: look at its load and at the network, or raise timeout; if the server expects no TLS, leave tls out; if only the Sentinels do not, write plain into the sentinel block"
	case f == stores.FailAway:
		return "Redis cannot be reached: see that it runs and that the address is right"
	case f == stores.FailRejected:
		return "Redis rejects calls: look at the error, and at the user's rights, maxmemory and persistence"
	case isAnswer(cause) && strings.Contains(cause.Error(), ofScript):
		return "this server cannot run Diana's script: " + needed
	case errors.Is(cause, errReply), isAnswer(cause) && !errors.As(cause, new(failedOp)):
		return "Redis, or a proxy in front of it, gives an answer that Diana does not know: look at the error, and at the log of each"
	}
	return "Redis gave an answer that Diana did not expect: see that no other program writes keys under key_prefix"
}
