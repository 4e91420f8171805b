package scripts

import (
	"fmt"
	"regexp"
	"strings"
)

// judge is an algorithm's chunk of Lua and what the script makes of it. One that
// is a single function, which makes no other and returns at its end alone, is put
// in line where plain asks are decided: nothing has to be made then, and nothing
// called.
type judge struct {
	chunk string
	code  byte

	inline    bool
	params    string // of the function
	arguments string // which it unpacks first, with where they end
	format    string // of the arguments
	body      string
	results   string
}

var (
	comment  = regexp.MustCompile(`--[^\n]*`)
	single   = regexp.MustCompile(`(?s)^\s*(?:local unpack, pack = struct\.unpack, struct\.pack\s+)?return function\(([a-z, _]*)\)\n(.*\n)  return ([^\n]*)\nend\s*$`)
	leaves   = regexp.MustCompile(`\b(return|function)\b`)
	unpacked = regexp.MustCompile(`^  local ([A-Za-z0-9, ]*) = unpack\('(<d+)', v, i\)\n`)
)

// What a judge's answers are put in.
const answers = "ok_, state_, at_, from_, reset_, stepped_, delay_, view_"

func newJudge(chunk string, code byte) *judge {
	j := &judge{chunk: chunk, code: code}
	parts := single.FindStringSubmatch(comment.ReplaceAllString(chunk, ""))
	if parts == nil || leaves.MatchString(parts[2]) || leaves.MatchString(parts[3]) {
		return j
	}
	j.inline, j.params, j.body, j.results = true, parts[1], parts[2], parts[3]
	if parts := unpacked.FindStringSubmatch(j.body); parts != nil {
		j.arguments, j.format, j.body = parts[1], parts[2], strings.TrimPrefix(j.body, parts[0])
	}
	return j
}

// lone decides asks of this rule alone. Its arguments are unpacked once for all
// asks that are the same.
func (j *judge) lone() string {
	var kept []string
	for i := range strings.Split(j.arguments, ", ") {
		kept = append(kept, fmt.Sprintf("a%d_", i))
	}
	names, before := strings.Join(kept, ", "), ""
	if j.arguments != "" {
		before = fmt.Sprintf("local %s = unpack('%s', v, i)\n", names, j.format)
	}
	return before + insert(run, "judge", j.judge("i", "9 + 8 * logs", names))
}

// oneOfSeveral judges by this rule among others.
func (j *judge) oneOfSeveral() string {
	return j.judge("at_", "from_", fmt.Sprintf("unpack('%s', v, i)", j.format))
}

// judge judges by the arguments at i and the state at from.
func (j *judge) judge(i, from, arguments string) string {
	given := []string{"v", i, "s", from, "t", "n", "0", "nil", "log"}
	if !j.inline {
		return fmt.Sprintf("judges = judges or {}\nif not judges[code] then\n%send\n%s = judges[code](%s)\n",
			j.function(), answers, strings.Join(given, ", "))
	}
	given = given[:strings.Count(j.params, ",")+1]
	text := fmt.Sprintf("local %s = %s\n", j.params, strings.Join(given, ", "))
	if j.arguments != "" {
		text += fmt.Sprintf("local %s = %s\n", j.arguments, arguments)
	}
	return "do\n" + text + j.body + assign(answers, j.results) + "\nend\n"
}

// function makes the function that the chunk returns.
func (j *judge) function() string {
	return fmt.Sprintf("judges[%d] = (function()\n%send)()\n", j.code, j.chunk)
}

// assign gives names their values, one after the other where that can be seen to
// be the same: all at once takes Lua twice as long.
func assign(names, values string) string {
	if strings.ContainsAny(values, "(){}'\"") {
		return names + " = " + values
	}
	var each []string
	all := strings.Split(values, ", ")
	for i, name := range strings.Split(names, ", ") {
		if i == len(all) {
			all = append(all, "nil")
		}
		each = append(each, name+" = "+all[i])
	}
	return strings.Join(each, "\n")
}
