package redis

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

func init() {
	storekit.NewTable = func(rules []algorithms.Rule, maxKeys int64) stores.Table {
		return memory.NewTable(rules, maxKeys)
	}
}
