package tool

import (
	"html"
	"strings"
)

// htmlText is the text of an HTML page and its title: without tags, scripts and
// styles, a line per block. It takes any text for HTML, however broken.
func htmlText(page string) (title, text string) {
	var b textBuilder
	for page != "" {
		at := strings.IndexByte(page, '<')
		if at < 0 {
			b.add(page)
			break
		}
		b.add(page[:at])
		page = page[at:]
		name, end := htmlTag(page)
		if end == 0 { // not a tag
			b.add(page[:1])
			page = page[1:]
			continue
		}
		page = page[end:]
		switch {
		case hidden[name]:
			_, page = cutElement(page, name)
		case name == "title":
			var inner string
			inner, page = cutElement(page, name)
			if title == "" {
				title = strings.Join(strings.Fields(html.UnescapeString(inner)), " ")
			}
		case name == "li":
			b.newLine()
			b.out.WriteString("- ")
		case name == "td", name == "th":
			b.space = true
		case name == "br", blocks[strings.TrimPrefix(name, "/")]:
			b.newLine()
		}
	}
	return title, strings.TrimSpace(b.out.String())
}

// hidden are elements whose content nobody reads.
var hidden = map[string]bool{
	"script": true, "style": true, "noscript": true, "template": true, "svg": true, "iframe": true, "object": true, "canvas": true,
}

// blocks are elements that stand on lines of their own.
var blocks = map[string]bool{
	"p": true, "div": true, "section": true, "article": true, "header": true, "footer": true, "nav": true, "main": true, "aside": true,
	"h1": true, "h2": true, "h3": true, "h4": true, "h5": true, "h6": true, "ul": true, "ol": true, "li": true, "table": true, "tr": true,
	"pre": true, "blockquote": true, "form": true, "fieldset": true, "hr": true, "dl": true, "dt": true, "dd": true, "figure": true,
	"figcaption": true, "address": true, "details": true, "summary": true, "option": true, "body": true, "head": true, "html": true,
}

// htmlTag reads the tag, comment or declaration at the start of s: its name in
// lower case ("/p" for an end tag, "" for what is none) and its length, 0 if there
// is none.
func htmlTag(s string) (name string, length int) {
	if rest, ok := strings.CutPrefix(s, "<!--"); ok {
		if end := strings.Index(rest, "-->"); end >= 0 {
			return "", 4 + end + 3
		}
		return "", len(s)
	}
	if len(s) < 2 {
		return "", 0
	}
	from := 1
	if s[1] == '/' {
		from = 2
	}
	switch {
	case s[1] == '!' || s[1] == '?':
	case from == len(s) || !isLetter(s[from]):
		return "", 0
	}
	to := from
	for to < len(s) && isNameByte(s[to]) {
		to++
	}
	return strings.ToLower(s[1:to]), tagEnd(s, to)
}

// tagEnd is the length of the tag whose attributes begin at i. A ">" in quotes does
// not end it, unless the quotes are never closed.
func tagEnd(s string, i int) int {
	for quote := byte(0); i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '>':
			return i + 1
		case (c == '"' || c == '\'') && strings.IndexByte(s[i+1:], c) >= 0:
			quote = c
		}
	}
	return len(s)
}

func isNameByte(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// cutElement cuts off the content of an element that holds no other, with its end
// tag.
func cutElement(s, name string) (inner, rest string) {
	for at := 0; ; {
		i := strings.Index(s[at:], "</")
		if i < 0 {
			return s, ""
		}
		at += i
		end := at + 2 + len(name)
		if end <= len(s) && strings.EqualFold(s[at+2:end], name) && (end == len(s) || !isNameByte(s[end])) {
			return s[:at], s[end+tagEnd(s[end:], 0):]
		}
		at += 2
	}
}

// A textBuilder collects text with its blanks collapsed.
type textBuilder struct {
	out   strings.Builder
	space bool // a blank is due
	lines int  // line breaks at the end, at most 2
}

// add adds text between two tags.
func (b *textBuilder) add(s string) {
	s = html.UnescapeString(s)
	for i, word := range strings.Fields(s) {
		if (i > 0 || b.space || startsBlank(s)) && b.out.Len() > 0 && b.lines == 0 {
			b.out.WriteByte(' ')
		}
		b.out.WriteString(word)
		b.space, b.lines = false, 0
	}
	if s != "" && startsBlank(s[len(s)-1:]) {
		b.space = true
	}
}

func startsBlank(s string) bool { return s != "" && strings.TrimLeft(s[:1], " \t\r\n\f") == "" }

// newLine begins a line, after at most one empty one.
func (b *textBuilder) newLine() {
	b.space = false
	if b.out.Len() > 0 && b.lines < 2 {
		b.out.WriteByte('\n')
		b.lines++
	}
}
