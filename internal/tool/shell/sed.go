package shell

import (
	"slices"
	"strings"
)

// sedReads reports whether a sed command prints and nothing else: no -i, no
// script file, and only script commands that neither write (w, W) nor run
// programs (e).
func sedReads(c *simple) bool {
	var scripts []string
	explicit := false
	for i := 1; i < len(c.args); i++ {
		v := c.first(i)
		if len(c.args[i].vals) != 1 && strings.HasPrefix(v, "-") {
			return false
		}
		switch {
		case v == "-e", v == "--expression":
			i++
			scripts, explicit = append(scripts, c.first(i)), true
		case strings.HasPrefix(v, "--expression="):
			scripts, explicit = append(scripts, strings.TrimPrefix(v, "--expression=")), true
		case slices.Contains([]string{"--quiet", "--silent", "--regexp-extended", "--separate", "--unbuffered",
			"--null-data", "--posix", "--debug", "--sandbox", "-", "--"}, v):
		case strings.HasPrefix(v, "-"):
			if strings.Trim(v[1:], "nErsuz") != "" {
				return false
			}
		case !explicit && len(scripts) == 0:
			if len(c.args[i].vals) != 1 || c.args[i].glob {
				return false
			}
			scripts = append(scripts, v)
		}
	}
	return len(scripts) > 0 && !slices.ContainsFunc(scripts, func(s string) bool { return !sedScript(s) })
}

// sedScript reports whether every command of a script is harmless.
func sedScript(s string) bool {
	ok := true
	for s = strings.TrimLeft(s, " \t;\n"); s != ""; s = strings.TrimLeft(s, " \t;\n") {
		if s, ok = sedAddress(s); !ok {
			return false
		}
		if rest, comma := strings.CutPrefix(s, ","); comma {
			rest = strings.TrimLeft(rest, " +~")
			if s, ok = sedAddress(rest); !ok || s == rest {
				return false
			}
		}
		s = strings.TrimLeft(s, " \t!")
		if s == "" {
			return false
		}
		cmd := s[0]
		s = s[1:]
		switch {
		case cmd == 's':
			if s, ok = sedSubstitute(s); !ok {
				return false
			}
		case strings.IndexByte("pd=lnNgGhHxPD", cmd) >= 0:
		case cmd == 'q' || cmd == 'Q':
			s = strings.TrimLeft(s, " 0123456789")
		default:
			return false
		}
		s = strings.TrimLeft(s, " \t")
		if s != "" && s[0] != ';' && s[0] != '\n' {
			return false
		}
	}
	return ok
}

// sedAddress takes an address off the front, if there is one.
func sedAddress(s string) (rest string, ok bool) {
	switch {
	case s == "":
		return s, true
	case s[0] == '$':
		return s[1:], true
	case s[0] == '/':
		rest, ok = sedPart(s[1:], '/', true)
		return strings.TrimLeft(rest, "IM"), ok
	}
	return strings.TrimLeft(s, "0123456789~"), true
}

// sedSubstitute takes /pattern/replacement/flags off the front.
func sedSubstitute(s string) (rest string, ok bool) {
	if s == "" || strings.IndexByte("/|#,@:%!", s[0]) < 0 {
		return "", false
	}
	delim := s[0]
	if s, ok = sedPart(s[1:], delim, true); !ok {
		return "", false
	}
	if s, ok = sedPart(s, delim, false); !ok {
		return "", false
	}
	return strings.TrimLeft(s, "gpiIM0123456789"), true
}

// sedPart takes text up to the delimiter off the front. A bracket expression
// that holds the delimiter is refused: programs differ about its end.
func sedPart(s string, delim byte, pattern bool) (rest string, ok bool) {
	bracket := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\n':
			return "", false
		case c == '\\':
			if bracket {
				return "", false
			}
			i++
		case c == delim:
			return s[i+1:], !bracket
		case pattern && c == '[':
			bracket = true
			if i+1 < len(s) && s[i+1] == '^' {
				i++
			}
			if i+1 < len(s) && s[i+1] == ']' {
				i++
			}
		case c == ']':
			bracket = false
		}
	}
	return "", false
}
