package sources

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: the folder says who owns a new file.
func keepOwner(*os.File, fs.FileInfo) error { return nil }
