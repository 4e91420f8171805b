package redisim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// fixed are commands whose replies are the same whenever they are sent.
var fixed = []string{
	"GET", "GET a b", "NOPE x y", "get a", "SET a", "SET a b PX", "SET a b PX x", "SET a b PX 0", "SET a b PX -1", "SET a b EX 1 PX 1",
	"SET a b NX XX", "SET a b KEEPTTL PX 1", "SET a b GET", "SET a b NX GET", "SET a b XX", "SET none b XX", "SET a b EX 9223372036854775807",
	"SET a b PX 9223372036854775807", "SET a b PXAT 1", "EXISTS a", "SET a 1.5", "SETRANGE a -1 x", "SETRANGE a x x", "SETRANGE a 536870912 x",
	"SETRANGE a 3 ", "SETRANGE none 3 ", "SETRANGE b 3 xy", "GET b", "GETRANGE b 0 -1", "GETRANGE b -2 -1", "GETRANGE b -1 -2", "GETRANGE b 9 10",
	"GETRANGE b 2 1", "GETRANGE b -100 1", "GETRANGE b 0 100", "GETRANGE none 0 1", "GETRANGE b 1.0 2", "GETRANGE b 01 2", "GETRANGE b -0 2",
	"STRLEN b", "STRLEN none", "DEL", "DEL b none", "EXISTS", "EXISTS a a none", "PEXPIRE a x", "PEXPIRE none 1", "PEXPIRE a 9223372036854775807",
	"PEXPIRE a -9223372036854775808", "SET a b", "EXPIRE a 9223372036854775807", "EXPIRE a -9223372036854775808", "SET a b", "PEXPIRE a 0", "GET a",
	"PTTL a", "SET a b", "PTTL a", "TTL a", "TYPE a", "TYPE none", "RPUSH l 1 2", "TYPE l", "GET l", "SETRANGE l 0 x", "GETRANGE l 0 1", "STRLEN l",
	"SET l x GET", "RPUSH a 1", "SET l x", "GET l", "EVAL", "EVAL x", "EVAL x y", "EVAL x 1", "EVAL x -1", "EVALSHA x 0", "EVALSHA x x",
	"EVALSHA aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0", "SCRIPT", "SCRIPT nope", "SCRIPT LOAD", "SCRIPT EXISTS", "SCRIPT EXISTS x y", "SCRIPT FLUSH x",
	"SCRIPT FLUSH SYNC", "SCRIPT FLUSH ASYNC", "SCRIPT FLUSH", "PING", "PING x", "PING x y", "ECHO x", "AUTH x", "AUTH x y", "AUTH default x", "AUTH x y z", "SELECT 0",
	"SELECT 16", "SELECT x", "SELECT -1", "CLIENT NOPE", "CLIENT SETNAME x", "CLIENT GETNAME", "CLUSTER SLOTS", "ASKING", "READONLY", "READWRITE", "PUBLISH a b",
	"HELLO 4", "HELLO x", "HELLO 2 NOPE", "HELLO 2 AUTH x y", "DBSIZE", "TIME x", "KEYS none", "FLUSHALL", "DBSIZE", "SUBSCRIBE", "SENTINEL x",
}

// lua are scripts whose replies are the same whenever they run. Each line is a script.
var luaScripts = strings.Split(strings.TrimSpace(`
return redis.call('GET')
return redis.call('NOPE')
return redis.pcall('NOPE')
return redis.call()
return redis.call('SET', 'a', {})
return redis.call('SUBSCRIBE', 'a')
return redis.call('SET', 'a', 1.5) and redis.call('GET', 'a')
return redis.call('SET', 'a', 1e15) and redis.call('GET', 'a')
return redis.call('SET', 'a', 2^53) and redis.call('GET', 'a')
return redis.call('SET', 'a', 1e17) and redis.call('GET', 'a')
return redis.call('SET', 'a', 1e300) and redis.call('GET', 'a')
return redis.call('SET', 'a', 1e-7) and redis.call('GET', 'a')
return redis.call('SET', 'a', -0.1) and redis.call('GET', 'a')
return redis.call('SET', 'a', 1/0) and redis.call('GET', 'a')
return redis.call('SET', 'a', 0/0) and redis.call('GET', 'a')
return redis.call('SET', 'a', 'x', 'PX', 0)
return redis.call('SET', 'a', 'x', 'PX', 1.5)
return redis.pcall('SET', 'a', 'x', 'PX', 1.5)
return redis.pcall('SET', 'a', 'x', 'PX', 1.5).err
return redis.pcall('SET', 'a', 'x').ok
return redis.call('RPUSH', 'list', '1')
return redis.call('GET', 'list')
return redis.pcall('GET', 'list')
local ok, e = pcall(redis.call, 'GET', 'list') return {tostring(ok), e}
local ok, e = pcall(redis.call, 'NOPE') return {tostring(ok), e}
local ok, e = pcall(error, {err = 'x y'}) return {tostring(ok), e}
local ok, e = pcall(error, 'x y') return {tostring(ok), e}
local ok, e = pcall(function() error('x y') end) return {tostring(ok), e}
local ok, e = pcall(function() local a = nil; return a.b end) return {tostring(ok), e}
error('x')
error('x', 0)
error()
error({err = 'CODE text'})
error({err = 'text'})
return {err = 'CODE text'}
return {ok = 'fine'}
return redis.error_reply('CODE text')
return redis.error_reply('-CODE text')
return redis.error_reply(1)
return redis.status_reply('fine')
return redis.sha1hex('x')
return redis.sha1hex()
return nil
return true
return false
return 3.99
return -3.99
return 1e19
return 1/0
return 0/0
return {}
return {1, 2, nil, 4}
return {1, {2, {3.5, 'x'}}, false, true}
return {x = 1, 2}
return 'x', 'y'
return tostring(1e15) .. ' ' .. 1e14 .. ' ' .. 123456789012345 .. ' ' .. 0.1 .. ' ' .. -1e-5 .. ' ' .. 1e100
return tostring(nil) .. tostring(true) .. tostring(2^53) .. tostring(1/0) .. tostring(-1/0)
return {7 % 3, -7 % 3, 7 % -3, 5.5 % 2, -5.5 % 2}
return {tostring(2^53 % 10), tostring((2^53 - 1) % 1000), tostring(9007199254740991 % 7), tostring(1 % 0)}
return {tostring(1.7e15 % 1e6), tostring(1700000000123456 % 1000000)}
return {'10' + 5, '0x10' + 0, 10 .. 20, ' 5 ' * 2}
return 'x' + 1
return {} + 1
return 1 + nil
local t = {} return t.x + 1
local t = {} return t.x .. 'a'
return 'a' .. {}
return #nil
return 1 < 'x'
return {} < {}
return nil > 1
return 'a' < 'b' and 'yes' or 'no'
local t = nil return t.x
local t = {} return t.x.y
local t = {} t.x.y = 1
local t = {} t[nil] = 1
local t = {} t[0/0] = 1
local f = 5 f()
local t = {} t.f()
local t = {} t:f()
nope()
return nope
nope = 1
string.x = 1
redis.x = 1
KEYS = 1
return string.nope
return math.floor('x')
return math.floor()
return math.max()
return string.sub()
return string.sub('hello', 2, -2) .. string.sub('hello', -3) .. string.sub('hello', 0) .. string.sub('hello', 9)
return string.rep('ab', 3) .. string.rep('x', 0) .. string.rep('x', -1)
return {string.byte('hello', 2), string.byte('hello', -1), string.byte('', 1)}
return {string.byte('hello', 1, -1)}
return string.char(104, 105) .. string.char()
return string.char(256)
return {string.find('hello', 'l', 1, true), string.find('hello', 'x', 1, true)}
return {string.find('hello', '', 10, true)}
return {string.find('hello', 'o', -1, true)}
return {string.find('a.b', '.', 1, true)}
return string.format('%d %s %5.2f %g %x %%', 42, 'x', 3.14159, 1e20, 255)
return string.format('%.0f', 1700000000123456)
return string.format('%d', 'x')
return {('x'):rep(3), ('hello'):len(), ('Hello'):upper(), ('Hello'):lower(), ('abc'):reverse()}
return table.concat({1, 2, 'x'}, ',') .. table.concat({}) .. table.concat({1, 2, 3}, '-', 2, 3)
return table.concat({1, {}, 3})
return table.concat({}, 'x', 1, 2)
local t = {3, 1, 2} table.sort(t) return t
local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t
local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) return t
local t = {1, 2, 3} table.remove(t) table.remove(t, 1) return t
local n = 0 for i = 10, 1, -3 do n = n + i end return n
local n = 0 for i = 1, 0 do n = n + 1 end return n
for i = 1, 'x' do end
local n = 0 for k, v in pairs({1, 2, x = 3}) do n = n + v end return n
local n = 0 for i, v in ipairs({1, 2, nil, 4}) do n = n + v end return n
for k in pairs(nil) do end
local i = 0 repeat local j = i i = i + 1 until j == 3 return i
local i = 0 while true do i = i + 1 if i > 5 then break end end return i
local function f(...) return select('#', ...), ... end return {f(1, nil, 3)}
local function f(...) local a, b = ... return a, b end return {f(1, 2, 3)}
local function f(n) if n == 0 then return 0 end return n + f(n - 1) end return f(50)
local a, b, c = (function() return 1, 2 end)() return {a, b, c == nil}
local t = {(function() return 1, 2 end)(), (function() return 3, 4 end)()} return t
local t = {((function() return 1, 2 end)())} return t
local fs = {} for i = 1, 3 do fs[i] = function() i = i + 1 return i end end return {fs[1](), fs[1](), fs[2]()}
local x = 1 local function f() x = x + 1 return x end f() return {f(), x}
local a, b = 1, 2 a, b = b, a return {a, b}
local t, i = {}, 1 i, t[i] = i + 1, 20 return {i, t[1]}
local s, e = 'x', 'y' s, e = false, s return {tostring(s), e}
local t = {1, 2, 3} t[#t + 1], t[#t] = 4, 5 return t
local t = {n = 1} t.n, t.m = t.n + 1, t.n return {t.n, t.m}
return {unpack({1, 2, 3})}
return {unpack({1, 2, 3}, 2)}
return {tonumber('12'), tonumber('x') == nil, tonumber(' 1e2 '), tonumber('0x1F'), tonumber('') == nil}
return {type(nil), type(1), type('x'), type({}), type(print), type(redis.call)}
return {rawget({5}, 1), tostring(rawequal('a', 'a')), tostring(next({}))}
return assert(false, 'no')
return assert(nil)
return assert(1, 2)
return not nil and 1 or 2
return {1 and 2, nil or 3, false or nil, nil and 1}
return {2 ^ 10, -2 ^ 2, 7 / 2, 1 - -1}
return {math.floor(-1.5), math.ceil(1.2), math.max(1, 3, 2), math.min(1, 3, 2), math.abs(-1), math.huge > 1 and 1}
return {KEYS[1], ARGV[1], #KEYS, #ARGV}
return 'a\0b\255'
return #'a\0b'
return [[long]]
return { [1] = 'a', 'b' }
return struct.pack('<d', 'x')
return struct.pack('<q', 1)
return struct.pack('<I33', 1)
return struct.pack('c5', 'abc')
return struct.pack('!3')
return struct.pack('<I4')
return struct.unpack('c0', 'abc')
return struct.unpack('<Bc0', 'abc')
return {struct.unpack('<Bc0', '\2abc')}
return struct.unpack('s', 'abc')
return {struct.unpack('sB', 'abc\0\7')}
return struct.unpack('d', 'abc')
return struct.unpack('B', 'abc', 0)
return struct.unpack('B', 'abc', 4)
return struct.unpack('B', 'abc', -1)
return {struct.size('<dBI4'), struct.size('!8Bd')}
return struct.size('s')
return struct.size('c0')
return redis.acl_check_cmd('nope')
return redis.acl_check_cmd('get', 'a')
return redis.REDIS_VERSION
`), "\n")

// TestRepliesAsRedis sends commands and scripts, right and wrong, to a real Redis and to the
// simulated one. The replies are the same.
func TestRepliesAsRedis(t *testing.T) {
	srv := redistest.Start(t)
	w := newTwin(t, srv, New(Options{Address: srv.Addr}))
	for range 2 {
		for _, line := range fixed {
			w.same(strings.Split(line, " ")...)
		}
		for _, script := range luaScripts {
			w.same("EVAL", script, "1", "key", "arg")
		}
	}
	t.Logf("%d commands and %d scripts", len(fixed), len(luaScripts))
}

// TestStructAsRedis packs and unpacks random values in random formats, many of which are
// wrong.
func TestStructAsRedis(t *testing.T) {
	w := newTwin(t, redistest.Start(t), New(Options{}))
	r := storekit.Seeded(t)
	failed := 0
	const n = 20_000
	for range n {
		call := randomStruct(r)
		if f := call[3]; strings.Contains(f, "c0") && strings.ContainsAny(f, "df") {
			continue // C does not define the size that a fraction, or one that is too large, stands for
		}
		if strings.HasPrefix(w.same(call...), "-") {
			failed++
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d calls, of which %d failed", n, failed)
}

// randomStruct returns a call of a function of struct.
func randomStruct(r *rand.Rand) []string {
	const options = "<>!bBhHlLiIcsfdx T qz0123456789"
	var format strings.Builder
	for range r.IntN(6) {
		format.WriteByte(options[r.IntN(len(options))])
		if r.IntN(4) == 0 {
			fmt.Fprint(&format, r.IntN(40))
		}
	}
	data := make([]byte, r.IntN(60))
	for i := range data {
		data[i] = byte(r.IntN(256) * r.IntN(2))
	}
	if r.IntN(2) == 0 {
		return []string{
			"EVAL", "local t = {struct.unpack(ARGV[1], ARGV[2], ARGV[3])} for i = 1, #t do t[i] = type(t[i]) == 'number' and string.format('%.17g', t[i]) or t[i] end return t",
			"0", format.String(), string(data), fmt.Sprint(r.IntN(12) - 2),
		}
	}
	args := []string{"EVAL", "return struct.pack(ARGV[1], unpack(ARGV, 2))", "0", format.String()}
	for range r.IntN(6) {
		switch r.IntN(5) {
		case 0:
			args = append(args, string(data))
		case 1:
			args = append(args, fmt.Sprint(r.Float64()*1e20-5e19))
		case 2:
			args = append(args, "")
		default:
			args = append(args, fmt.Sprint(r.IntN(100_000)-50_000))
		}
	}
	return args
}

// TestExpiryAsRedis lets keys expire, and sets their time to live.
func TestExpiryAsRedis(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	sim := New(Options{Address: srv.Addr})
	w := newTwin(t, srv, sim)
	ahead := time.Duration(0)
	for _, step := range []struct {
		after    time.Duration
		commands string
	}{
		{0, "SET a 1 PX 100000;SET b 1 EX 200;SET c 1;EXISTS a b c"},
		{99 * time.Second, "EXISTS a b c;TTL c;SET c 2 KEEPTTL;TTL c"},
		{2 * time.Second, "EXISTS a b c;GET a;SETRANGE b 0 x;DEL a;PEXPIRE a 1;TTL b"},
		{90 * time.Second, "SET b 2 KEEPTTL;GET b"},
		{10 * time.Second, "GET b;SET b 1 NX;SET b 1 XX PX 5000;SETRANGE b 1 y;GET b"},
		{6 * time.Second, "GET b;DEL b;EXISTS b;GETRANGE b 0 -1;SETRANGE b 1 z;PTTL b"},
	} {
		ahead += step.after
		clock.Set(ahead)
		sim.SetClockOffset(ahead)
		for _, line := range strings.Split(step.commands, ";") {
			w.same(strings.Split(line, " ")...)
		}
	}
}
