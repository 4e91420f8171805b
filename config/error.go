package config

import "errors"

// Error is an error in a zone, or in a document of rules.
type Error struct {
	Zone    string // its name; empty: the pointer has it, or nobody knows it yet
	Pointer string // JSON pointer (RFC 6901) to what is wrong, in the zone or in the document; empty: all of it
	Err     error  // the error itself
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Pointer != "" {
		text = e.Pointer + ": " + text
	}
	if e.Zone != "" {
		text = "zone " + e.Zone + ": " + text
	}
	return text
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }

// At adds a pointer to an error, or prepends it to the pointer that it has. The error does not
// name its zone any more.
func At(pointer string, err error) *Error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Err: err}
	}
	return &Error{Pointer: pointer + e.Pointer, Err: e.Err}
}

// InZone adds the name of a zone to an error.
func InZone(name string, err error) *Error {
	e := At("", err)
	e.Zone = name
	return e
}
