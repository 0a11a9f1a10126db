// Package transcript tests the App Server by its frames. A transcript is a txtar
// file: what a scripted model answers, what clients send, and every frame that
// they must get, word for word, in order. It is played against a whole server in
// this process: store, runtime, roster and door are the real ones.
//
//	What this is about.
//	-- model --
//	text hello
//
//	call TaskCreate {"text":"one"}
//	-- frames --
//	a> {"type":"input",...}
//	a. turn_finished
//	a< {"type":"input_accepted",...}
//
// The section model holds one answer per paragraph, one step per line: `text`,
// `think`, `call NAME JSON`, `status CODE TEXT`, `cut`, `overflow`, `length`, `hang`, and
// `gate NAME`, which waits for the line `open NAME` of the frames.
//
// A line of the section frames begins with the name of a connection, which is
// opened by its first line:
//
//	a> JSON    sends a frame; `a> raw TEXT` sends text as it is
//	a. TYPE    reads until a frame of the type or delta type came, or, for
//	           `a. settle`, until the answer to a command sent now, which is
//	           not shown; `a. TYPE xN` waits for N of them
//	a< JSON    the frames that were read; -update writes them
//	a! close   closes the connection
//	open NAME  opens a gate
//
// What differs between runs is replaced by placeholders: ids by their prefix and
// a number in order of appearance (`<agent:1>`, `<turn:2>`), times by `<time>`,
// the server's directory by `<dir>`. Placeholders in what is sent stand for the
// same values. The envelope is checked (event_seq without gaps, keys that fit)
// and left out; a device status is cut to what changes.
package transcript
