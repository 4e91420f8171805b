package redis

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

var kit = storekit.Kit{NewTable: func(rules []algorithms.Rule, maxKeys int64) stores.Table {
	return memory.NewTable(rules, maxKeys)
}}
