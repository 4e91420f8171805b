package stores

import "github.com/dianalimiter/diana/algorithms"

func init() {
	newTable = func(rules []algorithms.Rule, holds bool, maxKeys int64) tabler {
		return NewTable(rules, holds, maxKeys)
	}
}
