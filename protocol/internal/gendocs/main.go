// Gendocs writes docs/protocol.md from the protocol package. It is run by
// `go generate ./protocol`, in the package's directory.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"mneme/protocol/internal/docs"
)

func main() {
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	text, err := docs.Markdown(".")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, text, 0o644)
}
