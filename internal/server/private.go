package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mneme/internal/agent"
)

// writePrivate writes a file that only this user can read. A reader sees the old
// text or the new one.
func writePrivate(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}

// nodeID is the lasting name under which this state directory takes leases in a
// database that others share. It is made at the first use.
func nodeID(home string) (string, error) {
	path := filepath.Join(home, "node.id")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := agent.NewID("node")
		return id, writePrivate(path, id)
	}
	id := strings.TrimSpace(string(text))
	if err == nil && id == "" {
		err = fmt.Errorf("%s is empty; remove it to get a new one", path)
	}
	return id, err
}
