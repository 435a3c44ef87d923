//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/cli"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A gatewayProcess is a `patchbay serve` that runs.
type gatewayProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string // without a path
	token  string
	client *http.Client

	lines  chan string     // what it prints; closed when it has no more to say
	stdout strings.Builder // as far as it was read
}

// patchbayCommand is the program in a home and a project of its own. It must not
// hang the test.
func patchbayCommand(t *testing.T, home, project string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("patchbay") // TestMain put it there
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = project
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GORACE=" + quickExit}
	return cmd
}

// startGateway runs serve on a free port until it says where, or the test fails.
func startGateway(t *testing.T, home, project string, args ...string) *gatewayProcess {
	t.Helper()
	token, err := patchbayCommand(t, home, project, "token", "--no-daemon").Output()
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, token: strings.TrimSpace(string(token)), client: &http.Client{}, lines: make(chan string, 1000)}
	g.cmd = patchbayCommand(t, home, project, append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	g.cmd.Stderr = new(bytes.Buffer)
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		_ = g.cmd.Process.Kill() // it has ended, unless the test failed
		for range g.lines {
		}
		_ = g.cmd.Wait()
	})
	go func() {
		defer close(g.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.lines <- lines.Text()
		}
	}()
	g.url, _, _ = strings.Cut(g.printed("Serving "), "/mcp")
	return g
}

// printed waits for a line that begins like that, and returns the rest of it.
func (g *gatewayProcess) printed(begin string) string {
	g.t.Helper()
	for line := range g.lines {
		g.stdout.WriteString(line + "\n")
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return rest
		}
	}
	g.t.Fatalf("it does not print %q:\n%s", begin, g.cmd.Stderr)
	return ""
}

// end sends a signal and returns what was printed, and the exit code.
func (g *gatewayProcess) end(sig os.Signal) (string, int) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(sig); err != nil {
		g.t.Fatal(err)
	}
	return g.wait()
}

func (g *gatewayProcess) wait() (string, int) {
	g.t.Helper()
	for line := range g.lines {
		g.stdout.WriteString(line + "\n")
	}
	_ = g.cmd.Wait() // the code says all there is
	if err := g.cmd.Stderr.(*bytes.Buffer).String(); err != "" {
		g.t.Logf("stderr: %s", err)
	}
	return g.stdout.String(), g.cmd.ProcessState.ExitCode()
}

// request sends a request to the gateway; header are names and values by turns.
func (g *gatewayProcess) request(method, path, body string, header ...string) (*http.Response, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(answer)
}

// call makes one request of the modern era, which needs no session.
func (g *gatewayProcess) call(path, method, params string, header ...string) string {
	g.t.Helper()
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	params = strings.TrimSuffix(params, "}")
	if params != "{" {
		params += ","
	}
	all := append([]string{"Authorization", "Bearer " + g.token, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)
	if name, err := wire.StringMember(json.RawMessage(params+meta+"}"), "name"); err {
		all = append(all, "Mcp-Name", name)
	}
	resp, answer := g.request(http.MethodPost, path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+meta+`}}`, all...)
	if resp.StatusCode != http.StatusOK {
		g.t.Errorf("%s %s: %s: %s", path, method, resp.Status, answer)
	}
	return answer
}

func mcptestEntry(args ...string) string {
	text, _ := json.Marshal(append([]string{}, args...))
	return fmt.Sprintf(`{"command": "mcptest-server", "args": %s, "env": {"GORACE": %q}}`, text, quickExit)
}

func TestServe(t *testing.T) {
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	write(t, filepath.Join(home, ".config/patchbay/settings.json"), `{"gateway": {"profiles": {"say": {"servers": ["s"], "tools": ["mcp__s__echo"]}}, "allowedOrigins": ["https://app.example.com"]}}`)
	write(t, filepath.Join(project, ".mcp.json"), `{"mcpServers": {"docs": {"command": "docs"}}}`)
	g := startGateway(t, home, project)

	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"mcp__s__echo"`) || !strings.Contains(list, `"mcp__s__wipe"`) {
		t.Errorf("all tools: %s", list)
	}
	if list := g.call("/mcp/s", "tools/list", `{}`); !strings.Contains(list, `"name":"echo"`) || strings.Contains(list, "mcp__") {
		t.Errorf("the tools of one server: %s", list)
	}
	if list := g.call("/mcp/@say", "tools/list", `{}`); !strings.Contains(list, `"mcp__s__echo"`) || strings.Contains(list, "wipe") {
		t.Errorf("the tools of a profile: %s", list)
	}
	if r := g.call("/mcp", "tools/call", `{"name":"mcp__s__echo","arguments":{"text":"tide at noon"}}`); !strings.Contains(r, "tide at noon") {
		t.Errorf("a call: %s", r)
	}

	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	bearer := "Bearer " + g.token
	for _, tt := range []struct {
		name         string
		method, path string
		header       []string
		status       int
	}{
		{"alive", "GET", "/healthz", nil, 200},
		{"ready", "GET", "/readyz", nil, 200},
		{"nothing there", "GET", "/", nil, 404},
		{"no metrics here", "GET", "/metrics", nil, 404},
		{"no issuer", "GET", "/.well-known/oauth-protected-resource", nil, 404},
		{"no such server", "POST", "/mcp/nobody", []string{"Authorization", bearer}, 404},
		{"no such profile", "POST", "/mcp/@nothing", []string{"Authorization", bearer}, 404},
		{"no such server, no token", "POST", "/mcp/nobody", nil, 401},
		{"no such server, another host", "POST", "/mcp/nobody", []string{"Authorization", bearer, "Host", "evil.example.com"}, 421},
		{"no such profile, no token", "GET", "/mcp/@nothing", nil, 401},
		{"no token", "POST", "/mcp", nil, 401},
		{"no token, one server", "POST", "/mcp/s", nil, 401},
		{"no token, a profile", "POST", "/mcp/@say", nil, 401},
		{"another's token", "POST", "/mcp", []string{"Authorization", bearer + "x"}, 401},
		{"another host", "POST", "/mcp", []string{"Authorization", bearer, "Host", "evil.example.com"}, 421},
		{"another origin", "POST", "/mcp", []string{"Authorization", bearer, "Origin", "https://evil.example.com"}, 403},
		{"another site", "POST", "/mcp", []string{"Authorization", bearer, "Sec-Fetch-Site", "cross-site"}, 403},
		{"an origin that may", "POST", "/mcp", []string{"Origin", "https://app.example.com"}, 401},
	} {
		resp, body := g.request(tt.method, tt.path, ping, tt.header...)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s: %s", tt.name, resp.Status, body)
		}
		if challenge := resp.Header.Get("WWW-Authenticate"); (tt.status == 401) != strings.HasPrefix(challenge, `Bearer realm="patchbay"`) {
			t.Errorf("%s: challenged with %q", tt.name, challenge)
		}
		if strings.Contains(body, g.token) {
			t.Errorf("%s: the token is in %s", tt.name, body)
		}
	}

	out, code := g.end(syscall.SIGTERM)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	want := strings.ReplaceAll(greeting, "URL", g.url)
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("it printed (-want +got):\n%s", d)
	}
}

const greeting = `Serving URL/mcp (Ctrl-C ends it)

SERVER  STATE           TOOLS  FROM
docs    needs-approval  -      Claude Code, .mcp.json:1
s       connected       6      Patchbay, ~/.config/patchbay/mcp.json:1

To do:
  docs needs your approval: patchbay approve docs

Connect an agent; each gets all of these:
  any of 32 products  patchbay install <product>
  Claude Code         claude mcp add -s user patchbay -- patchbay serve --stdio
  Codex               codex mcp add patchbay -- patchbay serve --stdio
  Gemini CLI          gemini mcp add -s user patchbay patchbay serve -- --stdio
  VS Code             code --add-mcp '{"name": "patchbay", "command": "patchbay", "args": ["serve", "--stdio"]}'
  Cursor              "patchbay": {"command": "patchbay", "args": ["serve", "--stdio"]}  in mcpServers of ~/.cursor/mcp.json
  others              the command patchbay serve --stdio
  Claude Code, HTTP   claude mcp add -s user -t http patchbay URL/mcp -H "Authorization: Bearer $(patchbay token)"
  others, HTTP        URL/mcp  with the header Authorization: Bearer $(patchbay token)
`

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// holding starts a gateway with a call in flight that its server holds until
// told otherwise, and returns what that tells and what will be answered.
func holding(t *testing.T, flags ...string) (g *gatewayProcess, server net.Conn, told *bufio.Scanner, answered chan string) {
	t.Helper()
	home, project := machine(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	configure(t, home, mcptestEntry(append(flags, "-tell", l.Addr().String())...))
	g = startGateway(t, home, project)
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answered = make(chan string, 1)
	go func() {
		req, err := http.NewRequest(http.MethodPost, g.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcp__s__slow","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + g.token},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"mcp__s__slow"}}
		resp, err := g.client.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		answered <- fmt.Sprint(string(body), err)
	}()
	told = bufio.NewScanner(server)
	if !told.Scan() || told.Text() != "began" {
		t.Fatalf("the server told %q, %v", told.Text(), told.Err())
	}
	return g, server, told, answered
}

// gone waits for the end of a server's process.
func gone(t *testing.T, told *bufio.Scanner) {
	t.Helper()
	for told.Scan() {
	}
	if err := told.Err(); err != nil && !strings.Contains(err.Error(), "reset by peer") {
		t.Errorf("the server lives: %v", err)
	}
}

// A gateway that is asked to end takes no more requests and lets the call in
// flight finish.
func TestServeDrains(t *testing.T) {
	g, server, told, answered := holding(t)
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // it stops listening
		c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case a := <-answered:
		t.Fatalf("answered %s", a)
	default:
	}
	if _, err := server.Write([]byte("go")); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; !strings.Contains(a, "released") {
		t.Errorf("answered %s", a)
	}
	if _, code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gone(t, told)
}

// A second signal ends it at once, and a killed one leaves no server behind.
func TestServeEndsAtOnce(t *testing.T) {
	for _, signals := range [][]os.Signal{{syscall.SIGTERM, os.Interrupt}, {syscall.SIGKILL}} {
		g, _, told, answered := holding(t, "-linger")
		for _, sig := range signals {
			if err := g.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGTERM {
				for { // it has noticed
					c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
					if err != nil {
						break
					}
					c.Close()
				}
			}
		}
		<-answered
		if _, code := g.wait(); code == 0 || len(signals) == 2 && code != 130 {
			t.Errorf("%v: exit code %d", signals, code)
		}
		gone(t, told)
	}
}

// What a client presents to the gateway stays there.
func TestServeForwardsNoCredentials(t *testing.T) {
	var mu sync.Mutex
	var seen bytes.Buffer
	upstream, err := wire.NewServer(wire.ServerOptions{Info: json.RawMessage(`{"name":"up","version":"1"}`), Capabilities: json.RawMessage(`{"tools":{}}`), Handler: &scriptServer{tell: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	handler := wire.NewHTTPHandler(upstream, wire.HTTPOptions{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, true)
		mu.Lock()
		seen.Write(dump)
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	home, project := machine(t)
	configure(t, home, fmt.Sprintf(`{"type": "http", "url": %q, "headers": {"X-Own": "own-canary"}}`, server.URL))
	g := startGateway(t, home, project)
	for _, path := range []string{"/mcp", "/mcp/s"} {
		tool := map[string]string{"/mcp": "mcp__s__echo", "/mcp/s": "echo"}[path]
		if r := g.call(path, "tools/call", `{"name":"`+tool+`","arguments":{"text":"arrived"}}`, "Cookie", "session=cookie-canary", "X-Api-Key", "key-canary"); !strings.Contains(r, "arrived") {
			t.Errorf("%s: %s", path, r)
		}
	}
	g.end(syscall.SIGTERM)
	mu.Lock()
	defer mu.Unlock()
	for _, canary := range []string{g.token, "cookie-canary", "key-canary"} {
		if strings.Contains(seen.String(), canary) {
			t.Errorf("%q went upstream:\n%s", canary, seen.String())
		}
	}
	if !strings.Contains(seen.String(), "own-canary") || !strings.Contains(seen.String(), "arrived") {
		t.Errorf("the recorder saw %s", seen.String())
	}
}

// A file that cannot be read is named when serve begins: without it there may be
// no server, and nothing else would tell why.
func TestServeNamesBrokenFiles(t *testing.T) {
	home, project := machine(t)
	dir := filepath.Join(home, ".config", "patchbay")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mcp.json"), []byte("{\n\"mcpServers\": {"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, home, project, "--mcp-config", "nope.json")
	out, code := g.end(os.Interrupt)
	if code != 0 || !strings.Contains(out, "error: ~/.config/patchbay/mcp.json:2:") || !strings.Contains(out, "error: nope.json: no such file") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	cmd := patchbayCommand(t, home, project, "serve", "--stdio")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || !strings.Contains(stderr.String(), "patchbay/mcp.json:2:") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

// Settings that a running gateway does not take up are named when they change.
func TestServeNamesWhatTakesARestart(t *testing.T) {
	home, project := machine(t)
	file := filepath.Join(home, ".config", "patchbay", "settings.json")
	write(t, file, `{"gateway": {"url": "https://a.example.test"}}`)
	g := startGateway(t, home, project)
	reload := func() string {
		t.Helper()
		out, err := patchbayCommand(t, home, project, "reload").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	write(t, file, `{"gateway": {"url": "https://b.example.test", "listen": "127.0.0.1:7", "oidc": {"issuer": "https://issuer.example.test"}}}`)
	out := reload()
	for _, member := range []string{"url", "oidc"} {
		if want := "until it is started again (at /gateway/" + member + ")\n"; !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "/gateway/listen") { // --http is what counts
		t.Errorf("got\n%s", out)
	}
	write(t, file, `{"gateway": {"url": "https://a.example.test"}}`)
	if out := reload(); strings.Contains(out, "/gateway/") {
		t.Errorf("as it was:\n%s", out)
	}
	g.end(os.Interrupt)
	if log := g.cmd.Stderr.(*bytes.Buffer).String(); strings.Count(log, "at=/gateway/url") != 1 {
		t.Errorf("the log has\n%s", log)
	}
}

func TestServeTLS(t *testing.T) {
	home, project := machine(t)
	cert, key := filepath.Join(home, "cert.pem"), filepath.Join(home, "key.pem")
	pool := certificate(t, cert, key)
	g := startGateway(t, home, project, "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(g.url, "https://127.0.0.1:") {
		t.Errorf("serves %s", g.url)
	}
	g.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if resp, body := g.request(http.MethodGet, "/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
		t.Errorf("no tools are %s", list)
	}
	if out, code := g.end(os.Interrupt); code != 0 || !strings.Contains(out, "No servers are configured yet") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// certificate writes a certificate for this machine and its key, and returns who
// trusts it.
func certificate(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// An issuer that the settings name is asked for its keys, and its tokens count
// for the address that is served.
func TestServeAccessToken(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any = map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"}
		if r.URL.Path == "/keys" {
			document = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}
		}
		_ = json.NewEncoder(w).Encode(document)
	}))
	defer issuer.Close()
	home, project := machine(t)
	write(t, filepath.Join(home, ".config/patchbay/settings.json"), fmt.Sprintf(`{"gateway": {"oidc": {"issuer": %q}}}`, issuer.URL))
	g := startGateway(t, home, project)
	tokenFor := func(audience string) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(fmt.Appendf(nil, `{"iss":%q,"sub":"ada","aud":%q,"exp":%d}`, issuer.URL, audience, time.Now().Add(time.Hour).Unix()))
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	resp, _ := g.request(http.MethodPost, "/mcp", "{}", "Authorization", "Bearer "+tokenFor("https://other.example.com/mcp"))
	metadata := g.url + "/.well-known/oauth-protected-resource/mcp"
	if challenge := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, `resource_metadata="`+metadata+`"`) {
		t.Errorf("%s, challenged with %q", resp.Status, challenge)
	}
	if resp, body := g.request(http.MethodGet, strings.TrimPrefix(metadata, g.url), ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"resource":"`+g.url+`/mcp"`) {
		t.Errorf("%s: %s", resp.Status, body)
	}
	for _, token := range []string{tokenFor(g.url + "/mcp"), g.token} {
		g.token = token
		if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
			t.Errorf("no tools are %s", list)
		}
	}
	g.end(syscall.SIGTERM)
}

func TestServeWithoutToken(t *testing.T) {
	home, project := machine(t)
	g := startGateway(t, home, project, "--no-auth")
	g.token = ""
	if list := g.call("/mcp", "tools/list", `{}`); !strings.Contains(list, `"tools":[]`) {
		t.Errorf("no tools are %s", list)
	}
	out, code := g.end(os.Interrupt)
	if said := g.cmd.Stderr.(*bytes.Buffer).String(); code != 0 || said != "patchbay: --no-auth: every program on this machine can use your servers\n" {
		t.Errorf("exit code %d: %s", code, said)
	}
	if strings.Contains(out, "token") {
		t.Errorf("it speaks of a token:\n%s", out)
	}
}

func TestServeMetrics(t *testing.T) {
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	g := startGateway(t, home, project, "--metrics", "127.0.0.1:0")
	g.call("/mcp", "tools/call", `{"name":"mcp__s__echo","arguments":{"text":"x"}}`)
	g.url = strings.TrimSuffix(g.printed("Metrics "), "/metrics")
	if resp, body := g.request(http.MethodGet, "/metrics", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `server="s"`) {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if resp, _ := g.request(http.MethodGet, "/metrics", "", "Origin", "https://evil.example.com"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("to a web page: %s", resp.Status)
	}
	if resp, _ := g.request(http.MethodPost, "/mcp", "{}"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the gateway beside the metrics: %s", resp.Status)
	}
	g.end(syscall.SIGTERM)
}

func TestServeJSON(t *testing.T) {
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	cmd := patchbayCommand(t, home, project, "serve", "--http", "127.0.0.1:0", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var report struct {
		URL     string
		Servers []struct{ Name, State string }
	}
	if err := json.NewDecoder(out).Decode(&report); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(report.URL, "http://127.0.0.1:") || len(report.Servers) != 1 || report.Servers[0].State != "connected" {
		t.Errorf("it printed %+v", report)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("and then %s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestServeAddressInUse(t *testing.T) {
	home, project := machine(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := patchbayCommand(t, home, project, "serve", "--http", l.Addr().String())
	out, err := cmd.CombinedOutput()
	want := "patchbay: " + l.Addr().String() + ` is in use by another program.
Choose another address with --http, or port 0 for any that is free. If it is Patchbay that listens there, agents can connect to it, or run ` + "`patchbay serve --stdio`.\n"
	if err == nil || string(out) != want || cmd.ProcessState.ExitCode() != 6 {
		t.Errorf("exit code %d, %v:\n%s", cmd.ProcessState.ExitCode(), err, out)
	}
}

// A client on standard input and output gets the same, and what a person has to
// do is told beside it.
func TestServeStdio(t *testing.T) {
	home, project := machine(t)
	configure(t, home, mcptestEntry())
	write(t, filepath.Join(project, ".mcp.json"), `{"mcpServers": {"docs": {"command": "docs"}}}`)
	for _, tt := range []struct{ endpoint, tool string }{{"", "mcp__s__echo"}, {"s", "echo"}} {
		args := []string{"serve", "--stdio"}
		if tt.endpoint != "" {
			args = append(args, "--endpoint", tt.endpoint)
		}
		cmd := patchbayCommand(t, home, project, args...)
		cmd.Stderr = new(bytes.Buffer)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		ask := func(id int, method, params string) string {
			t.Helper()
			if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if strings.Contains(lines.Text(), fmt.Sprintf(`"id":%d`, id)) {
					return lines.Text()
				}
			}
			t.Fatalf("no answer to %s: %v\n%s", method, lines.Err(), cmd.Stderr)
			return ""
		}
		ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
		if list := ask(2, "tools/list", `{}`); !strings.Contains(list, `"name":"`+tt.tool+`"`) {
			t.Errorf("%q: %s", tt.endpoint, list)
		}
		if r := ask(3, "tools/call", `{"name":"`+tt.tool+`","arguments":{"text":"tide at noon"}}`); !strings.Contains(r, "tide at noon") {
			t.Errorf("%q: %s", tt.endpoint, r)
		}
		in.Close()
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%s", tt.endpoint, err, cmd.Stderr)
		}
		if said := cmd.Stderr.(*bytes.Buffer).String(); said != "patchbay: docs needs your approval: patchbay approve docs\n" {
			t.Errorf("%q: it said %s", tt.endpoint, said)
		}
	}
}

// A program that is about to be gone is not written down.
func TestTemporaryProgram(t *testing.T) {
	home, project := machine(t)
	program := filepath.Join(home, "go-build1", "exe", "patchbay")
	write(t, program, "")
	run := func(ctx context.Context, out io.Writer, args ...string) (string, int) {
		var errs bytes.Buffer
		code := cli.Main(ctx, cli.Env{
			Args: args, Dir: project, Home: home, Environ: []string{"HOME=" + home}, Now: time.Now, Executable: program,
			Stdin: strings.NewReader(""), Stdout: out, Stderr: &errs,
		})
		return errs.String(), code
	}
	if said, code := run(t.Context(), io.Discard, "install", "cursor"); code != 1 || !strings.Contains(said, "go install ./cmd/patchbay") {
		t.Errorf("exit code %d: %s", code, said)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		_, code := run(ctx, w, "serve", "--http", "127.0.0.1:0")
		w.Close()
		ended <- code
	}()
	var out strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "go install") {
			stop()
		}
	}
	if code := <-ended; code != 0 || strings.Contains(out.String(), "--stdio") || strings.Contains(out.String(), program) {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
