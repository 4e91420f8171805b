package admin

import "github.com/dianalimiter/diana/internal/ops/running"

// instance answers about an instance.
type instance struct{ *running.Instance }

// documents reads, checks and writes the document of rules of an instance.
type documents struct{ *running.Instance }
