package store_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"mneme/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		writeUntilKilled(dir)
	}
	code := storetest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
