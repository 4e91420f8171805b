package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/scripts"
)

// script is a script and its hash.
type script struct {
	text  string
	sha   any    // as an argument of EVALSHA
	codes string // of the third-party algorithms in it
}

func newScript(text, codes string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return &script{text, hex.EncodeToString(sum[:]), codes}
}

// inScript matches the position of an error in a script.
var inScript = regexp.MustCompile(`user_script:(\d+):`)

// blame returns an error of Redis with the names of the third-party algorithms that may
// have caused it: an error of Lua, in a script that has any.
func (s *script) blame(err error) error {
	var answered goredis.Error
	if s.codes == "" || !errors.As(err, &answered) || findAnswer(answered.Error()) != nil {
		return err
	}
	at := inScript.FindStringSubmatch(answered.Error())
	if at == nil {
		return err
	}
	line, _ := strconv.Atoi(at[1])
	return algorithmError{scripts.Decide().Names(s.text, s.codes, line), err}
}
