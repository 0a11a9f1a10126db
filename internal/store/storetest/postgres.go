package storetest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Main runs the tests of a package that uses Postgres and stops the server. It
// returns the exit code for os.Exit.
func Main(m *testing.M) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
		return max(code, 1)
	}
	return code
}

// Postgres returns the URL of a fresh PostgreSQL database, which is dropped when
// the test ends. The server is the one of MNEME_TEST_POSTGRES_URL, else one that is
// started for the test process from the binaries found; the package's TestMain
// must use Main, which stops it. Without either the test is skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	base, why, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	if why != "" {
		t.Skip("no PostgreSQL: " + why)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal("MNEME_TEST_POSTGRES_URL: ", err)
	}
	name := fmt.Sprintf("mneme_test_%d_%d", os.Getpid(), shared.next())
	admin(t, base, "CREATE DATABASE "+name)
	t.Cleanup(func() { admin(t, base, "DROP DATABASE "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}

func admin(t testing.TB, base, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatal(err)
	}
}

// A server is the PostgreSQL of this test process, started by the first test that
// needs it.
type server struct {
	mu     sync.Mutex // guards what follows
	n      int        // databases made
	url    string     // "" = not started
	dir    string
	cmd    *exec.Cmd
	exited chan error
}

// shared is the one server: test functions have nothing else in common.
var shared server

func (p *server) next() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return p.n
}

// start returns the server's URL, or why there is none.
func (p *server) start() (url, why string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.url != "" {
		return p.url, "", nil
	}
	if u := os.Getenv("MNEME_TEST_POSTGRES_URL"); u != "" {
		p.url = u
		return u, "", nil
	}
	bin := binaries()
	if bin == "" {
		return "", "neither /usr/lib/postgresql/*/bin nor PATH has initdb and postgres, and MNEME_TEST_POSTGRES_URL is not set", nil
	}
	cred, why := credential()
	if why != "" {
		return "", why, nil
	}
	if err := p.launch(bin, cred); err != nil {
		return "", "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	p.url = "postgres://postgres@/postgres?sslmode=disable&host=" + p.dir
	return p.url, "", nil
}

// binaries is the directory with the newest server, "" if there is none.
func binaries() string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	slices.Reverse(dirs)
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := exec.LookPath(filepath.Join(dir, "postgres")); err == nil {
			return dir
		}
	}
	return ""
}

// credential is the user to run the server as: it refuses to run as root.
func credential() (cred *syscall.Credential, why string) {
	if os.Getuid() != 0 {
		return nil, ""
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, "as root it needs a user postgres: " + err.Error()
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, "user postgres: " + err.Error()
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, "user postgres: " + err.Error()
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, ""
}

// launch makes a cluster in a new short directory (a socket's path is limited) and
// starts the server without any fsync.
func (p *server) launch(bin string, cred *syscall.Credential) error {
	dir, err := os.MkdirTemp(parent(), "mneme-pg-")
	if err != nil {
		return err
	}
	p.dir = dir
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
	init := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	init.Dir, init.SysProcAttr = dir, &syscall.SysProcAttr{Credential: cred}
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=100")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// Should the test process die, the server goes with it: SIGQUIT ends it at once.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGQUIT}
	started := make(chan error)
	p.exited = make(chan error, 1)
	go func() {
		// The signal comes when the thread that started the server ends.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.exited <- p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	return p.ready()
}

// parent is a directory in memory if there is one with room: making a database
// writes a thousand files.
func parent() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err == nil && fs.Bavail*uint64(fs.Bsize) > 1<<30 {
		return "/dev/shm"
	}
	return "/tmp"
}

func (p *server) ready() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), "postgres://postgres@/postgres?sslmode=disable&host="+p.dir)
		if err == nil {
			return conn.Close(context.Background())
		}
		select {
		case e := <-p.exited:
			log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return fmt.Errorf("the server ended: %v\n%s", e, log)
		default:
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// stop ends the server and removes its files.
func (p *server) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		return nil
	}
	if p.cmd != nil && p.cmd.Process != nil {
		if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil { // fast shutdown
			return err
		}
		<-p.exited // killed by our signal: no error of ours
	}
	return os.RemoveAll(p.dir)
}
