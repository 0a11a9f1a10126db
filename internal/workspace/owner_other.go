//go:build !unix

package workspace

import "io/fs"

// keepOwner has nothing to do where files have no owner in their mode.
func keepOwner(string, fs.FileInfo) {}
