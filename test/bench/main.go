// Command bench measures what decides how many agents fit on a machine: start,
// memory, CPU per turn, throughput and latency of the real server beside the
// scripted model, with durable commits on a real file system.
//
// Every figure of speed stands beside its ceiling: the same load sent straight
// to the scripted model, without the server between. On a small or busy
// machine the ceiling falls with the figure; compare ratios, not absolutes.
// Nothing here is a test: figures that miss their bar are marked, and the exit
// code is 0 as long as everything could be measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"mneme/test/harness"
)

// A figure is one row of the table.
type figure struct {
	name     string
	measured string
	bar      string // "" = none is set
	ceiling  string
	ok       bool
}

// A bench is a running server beside a running model.
type bench struct {
	ctx     context.Context
	group   *harness.Group
	bin     string
	dir     string
	model   *harness.Model
	spec    harness.Server
	server  *harness.Running
	length  time.Duration // of each load
	figures []figure
}

func main() {
	length := flag.Duration("for", 8*time.Second, "how long each load lasts")
	only := flag.String("only", "", "measure only the groups whose name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *length, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, only string) error {
	bin, err := harness.Build(ctx, "mneme", "mockllm")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mneme-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{ctx: ctx, group: &harness.Group{}, bin: bin, dir: dir, length: length}
	defer b.group.Close()
	if b.model, err = b.group.StartModel(ctx, bin); err != nil {
		return err
	}
	groups := []struct {
		name    string
		measure func() error
	}{
		{"start", b.start},
		{"idle connections", b.idle},
		{"one client", b.oneClient},
		{"offered load", b.offered},
		{"throughput", b.throughput},
		{"one stream", b.stream},
		{"REST creates", b.creates},
		{"REST streams", b.restStreams},
		{"REST one stream", b.restStream},
		{"REST list", b.restList},
	}
	for _, g := range groups {
		if !strings.Contains(g.name, only) {
			continue
		}
		if err := b.fresh(); err != nil {
			return err
		}
		if err := g.measure(); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	b.print()
	return nil
}

// fresh starts a server on new state, connected to the model.
func (b *bench) fresh() error {
	if b.server != nil {
		if err := b.server.Stop(); err != nil {
			return err
		}
	}
	home, err := os.MkdirTemp(b.dir, "home-")
	if err != nil {
		return err
	}
	b.spec = harness.Server{
		Bin: b.bin, Home: home, State: filepath.Join(home, "state"), Dir: home,
		Args: []string{"server", "--listen", "ws://127.0.0.1:0", "--permission-mode", "unrestricted", "--rest"},
	}
	if err := b.spec.Connect(b.ctx, b.model); err != nil {
		return err
	}
	b.server, err = b.group.StartServer(b.ctx, b.spec)
	return err
}

func (b *bench) add(name, bar, ceiling string, ok bool, format string, args ...any) {
	f := figure{name: name, measured: fmt.Sprintf(format, args...), bar: bar, ceiling: ceiling, ok: ok}
	b.figures = append(b.figures, f)
	fmt.Fprintf(os.Stderr, "%-52s %s\n", f.name, f.measured)
}

func (b *bench) print() {
	fmt.Println("| figure | measured | bar | ceiling of the set-up | |")
	fmt.Println("|---|---|---|---|---|")
	for _, f := range b.figures {
		mark := "met"
		switch {
		case f.bar == "":
			mark = ""
		case !f.ok:
			mark = "missed"
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", f.name, f.measured, f.bar, f.ceiling, mark)
	}
}
