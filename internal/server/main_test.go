package server_test

import (
	"testing"

	"go.uber.org/goleak"
)

func run(m *testing.M) { goleak.VerifyTestMain(m) }
