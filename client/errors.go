package client

import (
	"errors"
	"fmt"
)

// The errors that callers may test for with errors.Is.
var (
	// ErrClosed: the client was closed by its owner.
	ErrClosed = errors.New("client is closed")
	// ErrConnectionLost: the connection ended before the answer came. What the
	// server did is unknown. The error is a *ConnectionError.
	ErrConnectionLost = errors.New("connection lost")
	// ErrSlow: the reader of an event queue fell too far behind.
	ErrSlow = errors.New("event queue is full: the reader is too slow")
	// ErrTurnLost: the turn ended while the connection was down, so how it
	// ended is unknown. The conversation's messages tell.
	ErrTurnLost = errors.New("turn ended while the connection was down")
	// ErrRemoved: the queued input was removed from the queue before it ran.
	ErrRemoved = errors.New("input was removed from the queue")
)

// A ServerError is a response that says that the command failed.
type ServerError struct {
	Command string // the command's type
	Message string // the server's text; may be empty
}

func (e *ServerError) Error() string {
	if e.Message == "" {
		return e.Command + " failed"
	}
	return e.Command + ": " + e.Message
}

// A ConnectionError says how a connection ended. It is an ErrConnectionLost.
type ConnectionError struct {
	// Code is the close code that the server sent, 0 = none: 1001 is a server
	// that stops, 1009 a message that is too large, 1013 a client that reads
	// too slowly.
	Code   int
	Reason string
	Err    error // what the network said
}

func (e *ConnectionError) Error() string {
	switch {
	case e.Code == 0:
		return fmt.Sprintf("connection lost: %v", e.Err)
	case e.Reason == "":
		return fmt.Sprintf("connection lost: the server closed it with code %d", e.Code)
	}
	return fmt.Sprintf("connection lost: the server closed it with code %d: %s", e.Code, e.Reason)
}

// Is makes every ConnectionError an ErrConnectionLost.
func (e *ConnectionError) Is(target error) bool { return target == ErrConnectionLost }

func (e *ConnectionError) Unwrap() error { return e.Err }

// A DialError is a handshake that the server refused with an HTTP status.
type DialError struct {
	Status int
	Reason string // the status line's text; of a 401 it says what is wrong
}

func (e *DialError) Error() string {
	return fmt.Sprintf("server refused the connection: %d %s", e.Status, e.Reason)
}

// permanent reports whether dialling again cannot help.
func (e *DialError) permanent() bool { return e.Status >= 400 && e.Status < 500 && e.Status != 429 }
