package main

import (
	"fmt"
	"io"
	"strings"
)

// A flagDef is one flag of `mneme serve` and `mneme server`. They are parsed
// here and not by the library of the other commands because clients rely on
// their exact behaviour: an optional value of --listen, where an unknown option
// is reported, and which texts go to stdout (spec/app-server-core.md section
// 1.1).
type flagDef struct {
	name     string
	value    string // what the value is called in the usage; "" = takes none
	optional bool   // the value may be left out
	serve    bool   // of `mneme serve`
	server   bool   // of `mneme server`
	about    string // "" = not in the usage
}

var flagDefs = []flagDef{
	{name: "listen", value: "url", optional: true, serve: true, server: true, about: "ws://host[:port][/path]"},
	{name: "permission-mode", value: "mode", serve: true, server: true, about: "standard, acceptEdits, unrestricted or strict"},
	{name: "model", value: "handle", serve: true, server: true, about: "the default model, provider/model"},
	{name: "token-file", value: "path", serve: true, about: "file with the token that clients must send (or MNEME_TOKEN)"},
	{name: "ws-auth", value: "mode", serve: true, server: true, about: "capability-token or signed-bearer-token"},
	{name: "ws-token-file", value: "path", serve: true, server: true, about: "file with the capability token"},
	{name: "ws-token-sha256", value: "hex", serve: true, server: true, about: "SHA-256 digest of the capability token"},
	{name: "ws-shared-secret-file", value: "path", serve: true, server: true, about: "file with the secret of signed tokens"},
	{name: "ws-issuer", value: "text", serve: true, server: true, about: "issuer that signed tokens must have"},
	{name: "ws-audience", value: "text", serve: true, server: true, about: "audience that signed tokens must have"},
	{name: "ws-max-clock-skew-seconds", value: "n", serve: true, server: true, about: "clock difference allowed for signed tokens (30)"},
	{name: "allow-origin", value: "origin", serve: true, server: true, about: "a further origin that browsers may use (may be repeated)"},
	{name: "allow-host", value: "name", serve: true, server: true, about: "a further host name of a loopback listener (may be repeated)"},
	{name: "drain", value: "time", serve: true, server: true, about: "how long a stop waits for running turns (10s)"},
	{name: "log-level", value: "level", serve: true, server: true, about: "debug, info, warn or error"},
	{name: "openai-api", server: true, about: "announce the OpenAI-compatible API (not in this version: it answers 501)"},
	{name: "rest", server: true, about: "offer the Letta REST API on /v1"},
	{name: "computer-name", value: "name", server: true}, // refused beside --listen
	{name: "channels", value: "list", server: true},      // likewise
}

// usageError is a command line that cannot be understood: the usage goes to
// stdout, the text to stderr, and the exit code is 1.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) *usageError {
	return &usageError{fmt.Sprintf(format, args...)}
}

// parseFlags reads the arguments of serve or server. A flag that was given
// without a value has the value "". help is true for -h and --help.
func parseFlags(command string, args []string) (flags map[string][]string, help bool, err error) {
	flags = map[string][]string{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "-h" || arg == "--help" {
			return nil, true, nil
		}
		name, ok := strings.CutPrefix(arg, "--")
		if !ok || name == "" {
			if strings.HasPrefix(arg, "-") && len(arg) > 1 && arg != "--" {
				return nil, false, usagef("Unknown option '%s'", arg)
			}
			if arg == "--" {
				if i+1 == len(args) {
					break
				}
				arg = args[i+1]
			}
			return nil, false, usagef("Unexpected argument '%s'. `mneme %s` takes no positional arguments", arg, command)
		}
		name, value, inline := strings.Cut(name, "=")
		def := findFlag(command, name)
		if def == nil {
			return nil, false, usagef("Unknown option '--%s'", name)
		}
		if def.value == "" {
			if inline {
				return nil, false, usagef("Option '--%s' does not take an argument", name)
			}
			flags[name] = []string{""}
			continue
		}
		if !inline && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value, inline = args[i], true
		}
		if !inline && !def.optional {
			return nil, false, usagef("Option '--%s <value>' argument missing (write --%s=<value> for a value that begins with a dash)", name, name)
		}
		flags[name] = append(flags[name], value)
	}
	return flags, false, nil
}

// findFlag finds a flag of a command; nil = it has no such flag.
func findFlag(command, name string) *flagDef {
	for i, d := range flagDefs {
		if d.name == name && (command == "serve" && d.serve || command == "server" && d.server) {
			return &flagDefs[i]
		}
	}
	return nil
}

// printUsage writes the usage of serve or server.
func printUsage(w io.Writer, command string) {
	if command == "serve" {
		fmt.Fprint(w, "Usage: mneme serve [options]\n\nRuns the server with every door.\n\nOptions:\n")
	} else {
		fmt.Fprint(w, "Usage: mneme server --listen [url] [options]\n\nRuns the App Server alone.\n\nOptions:\n")
	}
	for _, d := range flagDefs {
		if findFlag(command, d.name) == nil || d.about == "" {
			continue
		}
		left := "--" + d.name
		if d.value != "" && d.optional {
			left += " [" + d.value + "]"
		} else if d.value != "" {
			left += " <" + d.value + ">"
		}
		fmt.Fprintf(w, "  %-36s %s\n", left, d.about)
	}
	fmt.Fprintf(w, "  %-36s %s\n", "-h, --help", "show this text")
}
