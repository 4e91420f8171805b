package testdir

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestLateWrites ends a test whose folder is still written to for a while.
func TestLateWrites(t *testing.T) {
	var dir string
	var writes sync.WaitGroup
	begun := make(chan struct{})
	t.Run("writes", func(t *testing.T) {
		dir = New(t)
		sub := filepath.Join(dir, "a", "b")
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		writes.Go(func() {
			end := time.Now().Add(300 * time.Millisecond)
			for i := 0; time.Now().Before(end); i++ {
				if os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), nil, 0o600) != nil {
					break // the folder is gone
				}
				if i == 0 {
					close(begun)
				}
			}
		})
		<-begun
	})
	writes.Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
