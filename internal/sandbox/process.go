package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A process is one started command. Its supervisor goroutine (supervise) owns
// the life of the group; everybody else asks through the channels.
type process struct {
	cmd     Command
	started time.Time
	record  *recorder
	pgid    int

	term chan struct{} // a polite stop was asked for; capacity 1
	kill chan struct{} // a kill was asked for; capacity 1
	bg   chan struct{} // closed when the command goes to the background
	// logged is closed when the log file exists, which bg asks for, or when
	// there is no more output.
	logged chan struct{}

	// answered is closed when the command itself has ended and the fields below
	// are set; done when no process of the group is left.
	answered chan struct{}
	done     chan struct{}
	exit     int
	timedOut bool
	leftover bool
	elapsed  time.Duration
}

// spawn starts cmd. An error means that nothing runs.
func spawn(cmd Command, background bool) (*process, error) {
	p := &process{
		cmd: cmd, record: newRecorder(cmd.LogDir),
		term: make(chan struct{}, 1), kill: make(chan struct{}, 1),
		bg: make(chan struct{}), logged: make(chan struct{}),
		answered: make(chan struct{}), done: make(chan struct{}),
	}
	if background {
		close(p.bg)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start command: %w", err), outR.Close(), outW.Close())
	}
	c := exec.Command("bash", "-c", cmd.Text)
	c.Dir, c.Stdout, c.Stderr = cmd.Dir, outW, errW
	c.Env = append([]string{}, cmd.Env...) // never nil: nil would inherit everything
	c.SysProcAttr = groupAttr()

	started := make(chan error)
	exited := make(chan struct{})
	go lead(c, started, exited)
	err = <-started
	err = errors.Join(err, outW.Close(), errW.Close())
	if err != nil && c.Process == nil {
		return nil, errors.Join(fmt.Errorf("start command: %w", err), outR.Close(), errR.Close())
	}
	p.pgid, p.started = c.Process.Pid, time.Now()

	drained := make(chan struct{})
	go p.pump(outR, errR, drained)
	go p.supervise(c, exited, drained, outR, errR)
	return p, nil
}

// lead starts the command and waits for it on one thread: the parent-death
// signal is sent when the thread that started the child ends.
func lead(c *exec.Cmd, started chan<- error, exited chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.Wait() // the status is in ProcessState
	close(exited)
}

// A chunk is a piece of output.
type chunk struct {
	isErr bool
	data  []byte
}

// pump reads both streams to their ends and records them.
func (p *process) pump(outR, errR *os.File, drained chan<- struct{}) {
	defer close(drained)
	chunks := make(chan chunk, 4)
	var readers sync.WaitGroup
	for _, r := range []*os.File{outR, errR} {
		readers.Go(func() { read(r, r == errR, chunks) })
	}
	ended := make(chan struct{})
	go func() {
		readers.Wait()
		close(ended)
	}()
	bg := p.bg
	for {
		select {
		case c := <-chunks:
			p.record.add(c.isErr, c.data)
		case <-bg: // from now on somebody may look into the log
			p.record.spill()
			close(p.logged)
			bg = nil
		case <-ended:
			for len(chunks) > 0 {
				c := <-chunks
				p.record.add(c.isErr, c.data)
			}
			if bg != nil {
				p.endLog()
			}
			p.record.finish()
			return
		}
	}
}

// endLog is the pump's last step of a command that was in the foreground so far.
func (p *process) endLog() {
	select {
	case <-p.bg:
		p.record.spill()
	default:
	}
	close(p.logged)
}

func read(r io.Reader, isErr bool, to chan<- chunk) {
	for {
		buf := make([]byte, 16<<10)
		n, err := r.Read(buf)
		if n > 0 {
			to <- chunk{isErr, buf[:n]}
		}
		if err != nil {
			return
		}
	}
}

// supervise waits for the command, stops it when asked, and gathers what it
// leaves behind.
func (p *process) supervise(c *exec.Cmd, exited, drained <-chan struct{}, outR, errR *os.File) {
	defer close(p.done)
	killed := p.await(exited)
	if !killed {
		select {
		case <-drained:
		case <-time.After(drainGrace):
		case <-p.kill:
			killed = true
		}
	}
	if killed {
		p.bury()
	}
	p.exit, p.elapsed = exitCode(c), time.Since(p.started)
	p.leftover = !killed && groupBusy(p.pgid)
	if p.leftover {
		close(p.answered)
		p.outlive()
	}
	// Whoever still holds the other ends has left the group.
	_ = outR.Close()
	_ = errR.Close()
	<-drained
	if !p.leftover {
		close(p.answered)
	}
}

// bury kills what is left of the group and waits until it is gone, which takes
// a moment, and no longer than buryLimit if a process hangs in the kernel.
func (p *process) bury() {
	signalGroup(p.pgid, syscall.SIGKILL)
	for deadline := time.Now().Add(buryLimit); groupBusy(p.pgid) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		signalGroup(p.pgid, syscall.SIGKILL) // those born while the last one was sent
	}
}

// await returns when the command has exited; killed tells that it was made to.
func (p *process) await(exited <-chan struct{}) (killed bool) {
	var timeout, grace <-chan time.Time
	if p.cmd.Timeout > 0 {
		timer := time.NewTimer(p.cmd.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	bg := p.bg
	stop := func() {
		killed = true
		signalGroup(p.pgid, syscall.SIGTERM)
		grace = time.After(stopGrace)
	}
	for {
		select {
		case <-exited:
			return killed
		case <-bg:
			bg = nil
			if p.cmd.ForegroundOnly {
				timeout = nil
			}
		case <-timeout:
			p.timedOut = true
			stop()
		case <-p.term:
			stop()
		case <-grace:
			signalGroup(p.pgid, syscall.SIGKILL)
		case <-p.kill:
			killed = true
			signalGroup(p.pgid, syscall.SIGKILL)
		}
	}
}

// outlive waits for what a finished command left running. The group's number
// cannot be given away while it has members, so signalling it is safe.
func (p *process) outlive() {
	poll := time.NewTicker(adoptPoll)
	defer poll.Stop()
	var grace <-chan time.Time
	for groupBusy(p.pgid) {
		select {
		case <-poll.C:
		case <-p.term:
			signalGroup(p.pgid, syscall.SIGTERM)
			grace = time.After(stopGrace)
			poll.Reset(5 * time.Millisecond)
		case <-grace:
			p.bury()
			return
		case <-p.kill:
			p.bury()
			return
		}
	}
}

// ask sends a request that may be pending already.
func ask(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
