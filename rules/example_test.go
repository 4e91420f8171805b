package rules_test

import (
	"fmt"

	"github.com/dianalimiter/diana/rules"
)

// A document changes zones by their names. What it does not mention stays as configured.
func ExampleParse() {
	d, err := rules.Parse([]byte(`{"zones": {"api": {"rules": [{"limit": 100, "window": "1m"}]}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Of("api").Rules[0].Limit, d.Of("other"))

	_, err = rules.Parse([]byte(`{"zones": {"api": {"rules": [{"limit": "many", "window": "1m"}]}}}`))
	fmt.Println(err)
	// Output:
	// 100 <nil>
	// /zones/api/rules/0/limit: "many": want a whole number
}
