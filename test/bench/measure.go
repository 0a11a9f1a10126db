package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mneme/test/harness"
)

const (
	script     = "TOKENS 50"
	renewEvery = 20 // turns of one conversation
)

// start measures from the start of the process to the first good answer of
// /readyz, on no state and on existing state.
func (b *bench) start() error {
	if err := b.server.Stop(); err != nil {
		return err
	}
	home := filepath.Join(b.dir, "start")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	var first, again []time.Duration
	for i := range 7 {
		state := filepath.Join(home, fmt.Sprint("state", i))
		for j := range 2 {
			took, err := b.ready(harness.Server{Bin: b.bin, Home: home, State: state, Dir: home})
			if err != nil {
				return err
			}
			if j == 0 {
				first = append(first, took)
			} else {
				again = append(again, took)
			}
		}
	}
	f, a := percentile(first, 50), percentile(again, 50)
	b.add("start to /readyz, first time (median of 7)", "150 ms", "", f <= 150*time.Millisecond, "%d ms", f.Milliseconds())
	b.add("start to /readyz, existing state (median of 7)", "60 ms", "", a <= 60*time.Millisecond, "%d ms", a.Milliseconds())
	var err error
	b.server, err = b.group.StartServer(b.ctx, b.spec)
	return err
}

// ready starts a server on a fixed port and polls it.
func (b *bench) ready(s harness.Server) (time.Duration, error) {
	const address = "127.0.0.1:46733"
	cmd := exec.CommandContext(b.ctx, filepath.Join(s.Bin, "mneme"), "server", "--listen", "ws://"+address)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.Home, "MNEME_HOME=" + s.State}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	for time.Since(begin) < 20*time.Second {
		resp, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				http.DefaultClient.CloseIdleConnections()
				return time.Since(begin), nil
			}
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("not ready after 20 s")
}

// idle measures memory at rest, and what a connection that watches one runtime
// adds to it.
func (b *bench) idle() error {
	const n = 1000
	time.Sleep(2 * time.Second)
	pid := b.server.PID()
	empty, err := rss(pid)
	if err != nil {
		return err
	}
	b.add("idle memory", "40 MB", "", empty <= 40<<20, "%.1f MB", float64(empty)/(1<<20))
	clients := make([]*client, n)
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.close()
			}
		}
	}()
	err = each(n, 16, func(i int) (err error) {
		clients[i], err = dial(b.ctx, b.server.WebSocket)
		return err
	})
	if err != nil {
		return err
	}
	time.Sleep(45 * time.Second) // idle actors leave after 30 s
	full, err := rss(pid)
	if err != nil {
		return err
	}
	per := (full - empty) / n
	b.add("memory per idle subscribed runtime, 1,000 connections", "60 KB", "", per <= 60<<10, "%.1f KB", float64(per)/1024)
	return nil
}

// oneClient measures latency without load.
func (b *bench) oneClient() error {
	c, err := dial(b.ctx, b.server.WebSocket)
	if err != nil {
		return err
	}
	defer c.close()
	const n = 200
	var got, top []time.Duration
	d := b.direct()
	for i := range n {
		if i%renewEvery == 0 {
			if err := c.renew(); err != nil {
				return err
			}
			if _, err := c.turn(script); err != nil { // warm
				return err
			}
		}
		t, err := c.turn(script)
		if err != nil {
			return err
		}
		got = append(got, t.first)
		if t, err = d.turn(script); err != nil {
			return err
		}
		top = append(top, t.first)
	}
	p := percentile(got, 50)
	b.add("first piece of the answer, 1 client, p50", "3 ms", ms(percentile(top, 50)), p <= 3*time.Millisecond, "%s", ms(p))
	return nil
}

// offered measures latency at 100 turns a second from 32 clients.
func (b *bench) offered() error {
	const clients, rate = 32, 100
	run := func(ask func(i int) (turn, error)) ([]time.Duration, error) {
		var mu sync.Mutex
		var firsts []time.Duration
		gap := time.Second * clients / rate
		begin := time.Now()
		err := each(clients, clients, func(i int) error {
			at := begin.Add(gap * time.Duration(i) / clients)
			for ; at.Before(begin.Add(b.length)); at = at.Add(gap) {
				time.Sleep(time.Until(at))
				t, err := ask(i)
				if err != nil {
					return err
				}
				mu.Lock()
				firsts = append(firsts, t.first)
				mu.Unlock()
			}
			return nil
		})
		return firsts, err
	}
	conns, closeAll, err := b.clients(clients)
	if err != nil {
		return err
	}
	defer closeAll()
	got, err := run(func(i int) (turn, error) { return conns[i].turn(script) })
	if err != nil {
		return err
	}
	d := b.direct()
	top, err := run(func(int) (turn, error) { return d.turn(script) })
	if err != nil {
		return err
	}
	p := percentile(got, 50)
	b.add("first piece, 100 turns/s offered by 32 clients, p50", "10 ms", ms(percentile(top, 50)), p <= 10*time.Millisecond, "%s", ms(p))
	return nil
}

// throughput measures turns a second and CPU a turn, as fast as 32 clients can.
func (b *bench) throughput() error {
	const clients = 32
	run := func(ask func(i int) (turn, error)) ([]time.Duration, time.Duration, error) {
		var mu sync.Mutex
		var wholes []time.Duration
		begin := time.Now()
		err := each(clients, clients, func(i int) error {
			for time.Since(begin) < b.length {
				t, err := ask(i)
				if err != nil {
					return err
				}
				mu.Lock()
				wholes = append(wholes, t.whole)
				mu.Unlock()
			}
			return nil
		})
		return wholes, time.Since(begin), err
	}
	conns, closeAll, err := b.clients(clients)
	if err != nil {
		return err
	}
	defer closeAll()
	counts := make([]int, clients)
	before, err := cpu(b.server.PID())
	if err != nil {
		return err
	}
	got, took, err := run(func(i int) (turn, error) {
		if counts[i]++; counts[i]%renewEvery == 0 {
			if err := conns[i].renew(); err != nil {
				return turn{}, err
			}
		}
		return conns[i].turn(script)
	})
	if err != nil {
		return err
	}
	after, err := cpu(b.server.PID())
	if err != nil {
		return err
	}
	d := b.direct()
	top, topTook, err := run(func(int) (turn, error) { return d.turn(script) })
	if err != nil {
		return err
	}
	perSecond := float64(len(got)) / took.Seconds()
	per := (after - before) / time.Duration(len(got))
	p99 := percentile(got, 99)
	b.add("turns/s, 32 clients", "400", fmt.Sprintf("%.0f", float64(len(top))/topTook.Seconds()), perSecond >= 400, "%.0f", perSecond)
	b.add("whole turn, 32 clients, p99", "250 ms", ms(percentile(top, 99)), p99 <= 250*time.Millisecond, "%s", ms(p99))
	b.add("CPU of the server per turn", "1.8 ms", "", per <= 1800*time.Microsecond, "%.2f ms", per.Seconds()*1000)
	return nil
}

// stream measures one long answer, one token per event.
func (b *bench) stream() error {
	const tokens = 100_000
	text := fmt.Sprintf("TOKENS %d", tokens)
	c, err := dial(b.ctx, b.server.WebSocket)
	if err != nil {
		return err
	}
	defer c.close()
	d := b.direct()
	var got, top []time.Duration
	for range 3 {
		if err := c.renew(); err != nil {
			return err
		}
		t, err := c.turn(text)
		if err != nil {
			return err
		}
		got = append(got, t.whole)
		if t, err = d.turn(text); err != nil {
			return err
		}
		top = append(top, t.whole)
	}
	rate := func(d time.Duration) float64 { return tokens / d.Seconds() }
	r := rate(percentile(got, 50))
	b.add("tokens/s in one stream, one token per event", "20,000", fmt.Sprintf("%.0f", rate(percentile(top, 50))), r >= 20_000, "%.0f", r)
	return nil
}

// clients dials n clients and warms each with one turn.
func (b *bench) clients(n int) ([]*client, func(), error) {
	conns := make([]*client, n)
	closeAll := func() {
		for _, c := range conns {
			if c != nil {
				c.close()
			}
		}
	}
	err := each(n, 8, func(i int) (err error) {
		if conns[i], err = dial(b.ctx, b.server.WebSocket); err != nil {
			return err
		}
		_, err = conns[i].turn(script)
		return err
	})
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return conns, closeAll, nil
}

// each runs f for 0 … n-1, at most width at a time, and returns the first error.
func each(n, width int, f func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	slots := make(chan struct{}, width)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func percentile(d []time.Duration, p int) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(len(s)*p/100, len(s)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
