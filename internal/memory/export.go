package memory

import (
	"context"
	"fmt"
	"os"
	"path"
)

// Export writes the files of a commit below dir, an existing directory, as plain
// files that only their owner may read. Symbolic links are left out: where they
// lead is no part of the commit.
func (m *Memory) Export(ctx context.Context, agentID, commit, dir string) error {
	s, err := m.Snapshot(ctx, agentID, commit)
	if err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	defer root.Close()
	var others []*File // whose content the snapshot does not hold
	var requests []string
	for _, f := range s.Files {
		switch {
		case !isRegular(f.Mode):
		case f.Kind == KindMarkdown && !f.Oversized:
			if err := exportFile(root, f.Path, []byte(f.Text)); err != nil {
				return fmt.Errorf("export memory: %w", err)
			}
		default:
			others = append(others, f)
			requests = append(requests, "contents "+f.Blob)
		}
	}
	if len(others) == 0 {
		return nil
	}
	objects, err := m.git.openObjects(ctx, m.Dir(agentID))
	if err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	defer objects.close()
	err = objects.each(requests, gitMaxOutput, func(i int, o object) error {
		if o.kind != "blob" {
			return fmt.Errorf("%s: %w", others[i].Path, errMissing)
		}
		if o.cut {
			return nil // too large to be of use
		}
		return exportFile(root, others[i].Path, o.data)
	})
	if err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	return nil
}

func exportFile(root *os.Root, p string, data []byte) error {
	if d := path.Dir(p); d != "." {
		if err := root.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	return root.WriteFile(p, data, 0o600)
}
