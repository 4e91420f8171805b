module github.com/dianalimiter/diana/test/adaptive

go 1.26.0

require github.com/dianalimiter/diana v0.0.0

replace github.com/dianalimiter/diana => ../..
