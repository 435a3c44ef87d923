//go:build long && linux

package attacks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/mcptest"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	os.Exit(m.Run())
}

// What holds during every attack and after it.
const (
	memory   = 256 << 20   // that no file backs
	patience = time.Second // of a client that has a token and means no harm
)

// aftermath is how long an attack is held when it is complete.
const aftermath = 3 * time.Second

// attacks are what clients do. Each has a gateway of its own.
var attacks = []struct {
	name      string
	do        func(*gateway)
	processes int // of the server that is attacked, at most
}{
	{"none", func(*gateway) {}, 1}, // how fast this machine is at the moment
	{"2,048 idle strangers", idleStrangers, 1},
	{"1,000 kept streams", keptStreams, 1},
	{"300 slow readers", slowReaders, 1},
	{"1,000 sessions with tools", manySessions, 1},
	{"3,000 modern clients", modernClients, 1},
	{"60 texts of capabilities", sameCapabilities, 2},
	// Eight that share, eight with one of their own, and the one that was there.
	{"60 modern capabilities", modernCapabilities, 17},
	// A session is somebody who is there: each may need a process, up to 256.
	{"60 legacy capabilities", legacyCapabilities, 61},
	{"60 sets of roots", setsOfRoots, 61},
}

// Whatever clients do, memory and processes are bounded and others are served.
func TestLongAttacks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "patchbay")
	if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/patchbay").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "attack\tpeak RssAnon\tafter\tcalls\tslowest answer\tprocesses\tafter\trefused")
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			g := start(t, program)
			end := g.watch()
			a.do(g)
			time.Sleep(aftermath)
			left, running := g.rssAnon(), g.lives.Running("attacked")
			end()
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%v\t%d\t%d\t%d\n", a.name, mib(g.peak), mib(left), g.calls, g.slowest.Round(time.Millisecond), g.processes, running, g.refused.Load())
			if g.peak >= memory {
				t.Errorf("it used %s", mib(g.peak))
			}
			if g.slowest > patience {
				t.Errorf("another client waited for %v", g.slowest)
			}
			if g.processes > a.processes {
				t.Errorf("%d processes of one server were running", g.processes)
			}
			if g.calls == 0 {
				t.Error("no other client was served")
			}
		})
	}
	table.Flush()
	t.Log("\n" + text.String())
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// A gateway is a `patchbay serve` that is attacked.
type gateway struct {
	t       *testing.T
	process *os.Process
	address string // to dial
	token   string
	client  *http.Client // of the attackers
	lives   *mcptest.Lifelines

	refused atomic.Int64 // requests of attackers

	// What was seen, to be read when nobody watches any more.
	peak      int64
	slowest   time.Duration
	calls     int
	processes int
}

// start runs a gateway with two servers: attacked, whose clients mean harm, and
// calm, which others use.
func start(t *testing.T, program string) *gateway {
	t.Helper()
	g := &gateway{t: t, lives: mcptest.NewLifelines(t), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: time.Minute}}
	home := t.TempDir()
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		return cmd
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(home, "description") // of every tool
	if err := os.WriteFile(long, bytes.Repeat([]byte("word "), 1<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	servers := map[string]any{}
	for name, args := range map[string][]string{"attacked": {"-discover=unknown", "-describe=" + long}, "calm": nil} {
		arguments, env := mcptest.Launch(append(args, g.lives.Arg(name))...)
		servers[name] = map[string]any{"command": self, "args": arguments, "env": env}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, ".config", "patchbay", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := run("token", "--no-daemon").Output()
	if err != nil {
		t.Fatal(err)
	}
	g.token = strings.TrimSpace(string(token))

	cmd := run("serve", "--http", "127.0.0.1:0", "--memory", "256MiB")
	var diagnostics bytes.Buffer
	cmd.Stderr = &diagnostics
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.process = cmd.Process
	lines := bufio.NewScanner(out)
	read := make(chan struct{})
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Process.Signal(os.Interrupt)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("patchbay serve: %v", err)
		}
		if diagnostics.Len() > 0 {
			t.Logf("patchbay serve says: %.500s", &diagnostics)
		}
	})
	for g.address == "" && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "Serving http://"); ok {
			g.address, _, _ = strings.Cut(rest, "/")
		}
	}
	go func() {
		defer close(read)
		for lines.Scan() { // it must not have to wait for us
		}
	}()
	if g.address == "" {
		t.Fatalf("patchbay serve does not say where: %s", &diagnostics)
	}
	return g
}

// watch looks at the gateway and uses it, as somebody who means no harm, until
// that is ended.
func (g *gateway) watch() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	every := func(d time.Duration, do func()) {
		all.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for ctx.Err() == nil {
				do()
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	g.call(&http.Client{}) // the server starts, which takes its time
	every(20*time.Millisecond, func() { g.peak = max(g.peak, g.rssAnon()) })
	every(20*time.Millisecond, func() { g.processes = max(g.processes, g.lives.Running("attacked")) })
	newcomer := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	every(100*time.Millisecond, func() {
		g.slowest = max(g.slowest, g.call(newcomer))
		g.calls++
	})
	return func() { stop(); all.Wait() }
}

// call calls a tool of calm and returns how long that took.
func (g *gateway) call(client *http.Client) time.Duration {
	client.Timeout = 30 * time.Second
	text, header := modern("tools/call", "mcp__calm__echo", `{"text":"hello"}`, `{"name":"calm","version":"1"}`, `{}`)
	begin := time.Now()
	resp, err := client.Do(g.post("/mcp", text, header))
	if err != nil {
		g.t.Errorf("another client: %v", err)
		return time.Since(begin)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if took := time.Since(begin); err == nil && resp.StatusCode == http.StatusOK && bytes.Contains(body, []byte("hello")) {
		return took
	}
	g.t.Errorf("another client: %s %.200s %v", resp.Status, body, err)
	return time.Since(begin)
}

// rssAnon is the memory of the gateway that no file backs.
func (g *gateway) rssAnon() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.process.Pid))
	if err != nil {
		g.t.Error(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	rest, _, _ = strings.Cut(rest, " kB")
	n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
	if err != nil {
		g.t.Errorf("the memory of the gateway cannot be read: %v", err)
	}
	return n << 10
}

// many does something so many times, by a few at a time.
func (g *gateway) many(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				do(i)
			}
		})
	}
	all.Wait()
}

// modern is a request without a session, and its header.
func modern(method, tool, arguments, info, capabilities string) (string, http.Header) {
	header := http.Header{"Mcp-Protocol-Version": {wire.Version20260728}, "Mcp-Method": {method}}
	params := ""
	if tool != "" {
		header.Set("Mcp-Name", tool)
		params = fmt.Sprintf(`"name":%q,"arguments":%s,`, tool, arguments)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":%s,"io.modelcontextprotocol/clientCapabilities":%s}}}`,
		method, params, wire.Version20260728, info, capabilities), header
}

// post is a request of somebody who has the token.
func (g *gateway) post(path, text string, header http.Header) *http.Request {
	r, _ := http.NewRequest(http.MethodPost, "http://"+g.address+path, strings.NewReader(text)) // the URL is one
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + g.token}}
	for name, values := range header {
		r.Header[name] = values
	}
	return r
}

// attack sends a request, reads the answer and counts it if it is a refusal,
// which is all right for an attacker.
func (g *gateway) attack(path, text string, header http.Header) (http.Header, string) {
	resp, err := g.client.Do(g.post(path, text, header))
	if err != nil {
		g.refused.Add(1)
		return nil, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 400 {
		g.refused.Add(1)
	}
	return resp.Header, string(body)
}

// session opens a legacy session and returns the header of its requests, nil if
// it was refused.
func (g *gateway) session(capabilities string) http.Header {
	header, _ := g.attack("/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"clientInfo":{"name":"a","version":"1"},"capabilities":%s}}`, wire.Version20251125, capabilities), nil)
	id := header.Get("Mcp-Session-Id")
	if id == "" {
		return nil
	}
	own := http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {wire.Version20251125}}
	g.attack("/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, own)
	return own
}

func legacyCall(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp__attacked__%s","arguments":%s}}`, tool, arguments)
}

// dial opens a connection that reads as little as possible, until the end of the
// test. It is nil if there is none to be had.
func (g *gateway) dial() net.Conn {
	c, err := net.DialTimeout("tcp", g.address, 10*time.Second)
	if err != nil {
		g.refused.Add(1)
		return nil
	}
	g.t.Cleanup(func() { c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	return c
}

func idleStrangers(g *gateway) {
	g.many(2048, func(i int) {
		if c := g.dial(); c != nil && i%2 == 0 { // the others say nothing at all
			_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		}
	})
}

// keptStreams has streams kept for clients that never come back for them: half of
// them have read them, half have gone before. Most are as large as is kept after
// it was read.
func keptStreams(g *gateway) {
	g.many(1000, func(i int) {
		header := g.session(`{}`)
		if header == nil {
			return
		}
		header.Set("Accept", "text/event-stream")
		text := legacyCall("long", `{"bytes":250000}`)
		if i%5 == 0 {
			text = legacyCall("long", `{"bytes":2000000}`)
		}
		if i%2 == 0 {
			g.attack("/mcp", text, header)
			return
		}
		resp, err := g.client.Do(g.post("/mcp", text, header))
		if err != nil {
			g.refused.Add(1)
			return
		}
		resp.Body.Close()
	})
}

// slowReaders ask for much and never read it.
func slowReaders(g *gateway) {
	g.many(300, func(i int) {
		c := g.dial()
		if c == nil {
			return
		}
		text, header := modern("tools/call", "mcp__attacked__long", `{"bytes":4000000}`, `{"name":"slow","version":"1"}`, `{}`)
		if i%2 == 0 {
			header.Set("Accept", "text/event-stream")
		}
		if g.post("/mcp", text, header).Write(c) != nil {
			g.refused.Add(1)
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, _ := bufio.NewReaderSize(io.LimitReader(c, 16), 16).ReadString(' ')
		if !strings.HasPrefix(line, "HTTP/1.1") { // it has been thrown out
			g.refused.Add(1)
		}
	})
}

// manySessions each have a list of tools.
func manySessions(g *gateway) {
	g.many(1000, func(int) {
		if header := g.session(`{}`); header != nil {
			g.attack("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header)
			g.attack("/mcp", legacyCall("echo", `{"text":"x"}`), header)
		}
	})
}

// modernClients say much of themselves, and each something else.
func modernClients(g *gateway) {
	padding := strings.Repeat("x", 30_000)
	g.many(3000, func(i int) {
		info := fmt.Sprintf(`{"name":"client %d","version":"1","title":%q}`, i, padding)
		text, header := modern("tools/list", "", "", info, `{}`)
		g.attack("/mcp", text, header)
		text, header = modern("tools/call", "mcp__attacked__echo", `{"text":"x"}`, info, `{}`)
		g.attack("/mcp", text, header)
	})
}

// different are capabilities that no two clients have in common. Servers may act
// on each of them.
func different(i int) string {
	return fmt.Sprintf(`{"elicitation":{},"sampling":{},"roots":{},"experimental":{"e%d":{}}}`, i)
}

// sameCapabilities are written differently, and are the same to servers.
func sameCapabilities(g *gateway) {
	g.many(60, func(i int) {
		text, header := modern("tools/call", "mcp__attacked__echo", `{"text":"x"}`, `{"name":"a","version":"1"}`, fmt.Sprintf(`{"nobody knows %d":{}}`, i))
		g.attack("/mcp", text, header)
	})
}

func modernCapabilities(g *gateway) {
	g.many(60, func(i int) {
		text, header := modern("tools/call", "mcp__attacked__echo", `{"text":"x"}`, `{"name":"a","version":"1"}`, different(i))
		g.attack("/mcp", text, header)
	})
}

func legacyCapabilities(g *gateway) {
	g.many(60, func(i int) {
		if header := g.session(different(i)); header != nil {
			g.attack("/mcp", legacyCall("echo", `{"text":"x"}`), header)
		}
	})
}

// setsOfRoots has sessions with different roots use a server that asks for them.
func setsOfRoots(g *gateway) {
	var told atomic.Int64
	g.many(60, func(i int) {
		header := g.session(`{"roots":{"listChanged":true}}`)
		if header == nil {
			return
		}
		// The server asks, and leaves it at that.
		ask := legacyCall("raw", fmt.Sprintf(`{"text":"{\"jsonrpc\":\"2.0\",\"id\":\"roots %d\",\"method\":\"roots/list\"}"}`, i))
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second) // sometimes it cannot be told whom to ask
		defer stop()
		resp, err := g.client.Do(g.post("/mcp", ask, header).WithContext(ctx))
		if err != nil {
			g.refused.Add(1)
			return
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, _ := strings.CutPrefix(lines.Text(), "data: ")
			if method, _ := wire.StringMember(json.RawMessage(data), "method"); method != "roots/list" {
				continue
			}
			told.Add(1)
			id, _ := wire.Member(json.RawMessage(data), "id")
			g.attack("/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///root%d"}]}}`, id, i), header)
			break
		}
		g.attack("/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, header)
		resp.Body.Close()
		g.attack("/mcp", strings.Replace(legacyCall("echo", `{"text":"x"}`), `"id":1`, `"id":2`, 1), header)
	})
	if n := told.Load(); n < 30 {
		g.t.Errorf("only %d were asked for their roots", n)
	}
}
