package config_test

import (
	"fmt"
	"time"

	"github.com/dianalimiter/diana/config"
)

// A rate is a limit in a window, which may be a number of units or a period of the calendar.
func ExampleParseRate() {
	limit, window, err := config.ParseRate("1000/1h30m")
	fmt.Println(limit, window.Duration == 90*time.Minute, err)

	_, _, err = config.ParseRate("10")
	fmt.Println(err)
	// Output:
	// 1000 true <nil>
	// rate "10": want <count>/<window>, such as 10/s
}

// A zone is checked as a whole: its error names the zone and the place in it, what is wrong and what would be right.
func ExampleZone_Check() {
	z := &config.Zone{Name: "api", Rules: []*config.Rule{{Window: config.Window{Duration: time.Minute}}}}
	_, err := z.Check(nil)
	fmt.Println(err)
	// Output:
	// zone api: /rules/0: limit 0: want at least 1
}
