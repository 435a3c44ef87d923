package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/gateway"
	"github.com/patchbay-mcp/patchbay/internal/observe"
)

// serveFlags is what `serve` can be told.
type serveFlags struct {
	http     string
	stdio    bool
	endpoint string

	noCode, noAuth, insecureBind bool
	tlsCert, tlsKey              string
	logLevel, metrics            string
	memory                       string
	logs                         bool // what to log was said
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Offer all servers to agents, as one MCP server",
		Long: `Serve every server of this directory to any MCP client: over Streamable HTTP on
127.0.0.1:7332, or with --stdio on standard input and output.

  /mcp              everything
  /mcp/<server>     one server, as if the client were connected to it
  /mcp/@<profile>   a selection, named in settings.json (gateway.profiles)

Clients present the token that "patchbay token" prints. Requests of web pages are
refused. An address that other machines can reach needs TLS, or --insecure-bind
where a proxy has it; access tokens of an issuer are accepted if settings.json
names one (gateway.oidc).

With --stdio the servers are those of a daemon, which is started if none runs, so
that all agents share one process for each server: see "patchbay daemon". Over
HTTP this process is the daemon, if there is none; else it has the one that runs
listen for as long as this command runs. --metrics, --memory and --log-level are
about the process that has the servers: with them, beside a daemon, this one has
its own.

SIGTERM and Ctrl-C let calls in flight finish, for 10 seconds at most; a second
one ends at once.`,
		Example: `  patchbay serve                          print how to connect agents, and serve
  patchbay serve --stdio                  what an agent's configuration starts
  patchbay serve --stdio --endpoint files one server and its own names of tools
  patchbay serve --http 127.0.0.1:0       any port that is free
  patchbay serve --http 0.0.0.0:7332 --tls-cert cert.pem --tls-key key.pem`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.stdio && (f.http != "" || f.tlsCert != "" || f.tlsKey != "" || f.noAuth || f.insecureBind):
				return usagef(cmd.CommandPath(), "--stdio listens on no address; leave out --http and what belongs to it")
			case f.endpoint != "" && !f.stdio:
				return usagef(cmd.CommandPath(), "--endpoint is for --stdio; over HTTP it is part of the URL")
			case f.stdio && (f.metrics != "" || f.memory != "") && !a.alone():
				return usagef(cmd.CommandPath(), "--metrics and --memory are of a process with servers of its own: add --no-daemon")
			case a.strictMCPConfig && len(a.mcpConfig) == 0:
				return usagef(cmd.CommandPath(), "--strict-mcp-config needs at least one --mcp-config FILE")
			}
			if f.memory != "" {
				if _, err := config.ParseMemory(f.memory); err != nil {
					return usagef(cmd.CommandPath(), "--memory: %v", err)
				}
			}
			log, err := a.logger(cmd, f.logLevel)
			if err != nil {
				return err
			}
			if f.stdio {
				return a.serveStdio(cmd.Context(), f, log)
			}
			f.logs = cmd.Flags().Changed("log-level")
			return a.serveHTTP(cmd.Context(), f, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.http, "http", "", "`address` to listen on (default: gateway.listen of the settings, else 127.0.0.1:7332)")
	flags.BoolVar(&f.stdio, "stdio", false, "serve one client on standard input and output")
	flags.StringVar(&f.endpoint, "endpoint", "", "with --stdio: one `server`, an adopted one as product/server, or @profile (default: everything)")
	flags.BoolVar(&f.noCode, "no-code", false, "without the built-in coding tools (not part of this version yet)")
	flags.BoolVar(&f.noAuth, "no-auth", false, "answer requests without a token, on this machine's own addresses only")
	flags.BoolVar(&f.insecureBind, "insecure-bind", false, "let other machines connect without TLS")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the TLS certificate, in PEM")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`file` with its key, in PEM")
	flags.StringVar(&f.logLevel, "log-level", "warn", "what to log on standard error: `level` debug, info, warn or error")
	flags.StringVar(&f.metrics, "metrics", "", "`address` to offer metrics for Prometheus on, at /metrics")
	flags.StringVar(&f.memory, "memory", "", "`size` of memory to use at most, such as 256MiB (default: gateway.memory of the settings, else 512MiB)")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	return cmd
}

// logger returns where a process that serves tells what happens.
func (a *app) logger(cmd *cobra.Command, name string) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, usagef(cmd.CommandPath(), "unknown --log-level %q: expected debug, info, warn or error", name)
	}
	return slog.New(slog.NewTextHandler(a.env.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// serving is one run of `serve`.
type serving struct {
	app     *app
	flags   serveFlags
	log     *slog.Logger
	books   *observe.Books
	views   *control.Views
	reports sync.WaitGroup // what is told a while after the start

	metricsURL  string // empty if there are none
	stopMetrics func()

	mu       sync.Mutex
	served   []string // URLs that are served, if the settings do not say
	gateways map[*patchbay.Host]*gateway.Gateway

	inputs patchbay.Inputs // of all views
}

func (a *app) newServing(f serveFlags, log *slog.Logger) (*serving, error) {
	dirs, err := patchbay.Options{Dir: a.env.Dir, Home: a.env.Home, Environ: a.env.Environ}.Directories()
	if err != nil {
		return nil, err
	}
	traces, err := observe.CollectorFromEnv(a.env.getenv)
	if err != nil {
		return nil, err
	}
	s := &serving{app: a, flags: f, log: log, gateways: map[*patchbay.Host]*gateway.Gateway{}, stopMetrics: func() {}}
	s.books = observe.New(observe.Options{Logger: log, AuditDir: dirs.State, Traces: traces})
	s.views = control.NewViews(s.open)
	return s, nil
}

func (s *serving) close() {
	s.stopMetrics()
	s.views.Close()
	s.reports.Wait()
	if err := s.books.Close(); err != nil {
		s.log.Error("the audit log cannot be closed", "error", err)
	}
}

// open makes the view of a caller: its servers, and the gateway before them.
func (s *serving) open(ctx context.Context, c control.Caller, beside *patchbay.Host) (*control.View, error) {
	env := s.app.env
	s.mu.Lock()
	served := slices.Clone(s.served)
	s.mu.Unlock()
	own := c.Dir == env.Dir && slices.Equal(c.Environ, env.Environ)
	opts := patchbay.Options{
		Dir: c.Dir, Home: env.Home, Environ: c.Environ, Now: env.Now,
		Files: s.app.mcpConfig, StrictConfig: s.app.strictMCPConfig, FailOnInvalid: s.app.failOnInvalid,
		Inputs:     &s.inputs, // for as long as this process lives
		WatchFiles: true, Guard: env.Guard, Version: readBuildFacts().Version, Logger: s.log,
		UI:     control.UI(false), // agents answer for themselves
		Beside: beside,            // what is connected the same way is connected once
		Served: served, Serves: !s.flags.stdio && own,
	}
	s.books.Attach(&opts)
	h, err := patchbay.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	g := gateway.New(h, gateway.Options{Version: readBuildFacts().Version, Logger: s.log, Memory: s.memory(h.Settings().Gateway)})
	s.mu.Lock()
	s.gateways[h] = g
	now := slices.Clone(s.served)
	s.mu.Unlock()
	if !slices.Equal(now, served) { // while it was being opened
		if err := h.SetServed(ctx, now); err != nil {
			s.log.Warn("the servers were not read again", "error", err)
		}
	}
	forget := s.books.Follow(h)
	needs := func(ctx context.Context) []string { return needsOf(ctx, h) }
	listen := func(ctx context.Context, o control.ListenOptions, ready func(string) error) error {
		return s.listenFor(ctx, h, o, ready)
	}
	return &control.View{Host: h, Attach: g.Serve, Listen: listen, Check: g.Check, Needs: needs, Drain: g.Shutdown, Close: func() error {
		forget()
		s.mu.Lock()
		delete(s.gateways, h)
		s.mu.Unlock()
		// Whoever was served here is gone, or was given time before.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return errors.Join(ignoreCancelled(g.Shutdown(ended)), h.Close())
	}}, nil
}

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s *serving) daemon() control.Daemon {
	return control.Daemon{Views: s.views, Metrics: s.books.Metrics(), Logger: s.log}
}

// offerMetrics serves the metrics on an address of their own, if asked to.
func (s *serving) offerMetrics(ctx context.Context) error {
	if s.flags.metrics == "" {
		return nil
	}
	l, err := gateway.Listen(ctx, gateway.ListenOptions{Address: s.flags.metrics, Insecure: s.flags.insecureBind, CertFile: s.flags.tlsCert, KeyFile: s.flags.tlsKey})
	if err != nil {
		return err
	}
	s.metricsURL, s.stopMetrics = l.URL+"/metrics", gateway.ServeMetrics(ctx, l, s.books.Metrics())
	return nil
}

// ballast is memory that nobody touches, so that no page of it is ever there. It
// counts as live all the same: the garbage collector, which runs when the heap
// has doubled, would else run very often in a gateway that has little on it.
const ballast = 10 << 20

func (s *serving) overHTTP(ctx context.Context) error {
	defer runtime.KeepAlive(make([]byte, ballast))
	var listener *gateway.Listener
	var err error
	if s.flags.http != "" { // what the address is, the servers' configuration has no say in
		if listener, err = s.listen(ctx, s.flags.http); err != nil {
			return err
		}
		defer listener.Close()
		s.served = append(s.served, listener.URL+"/mcp")
	}
	v, release, err := s.views.View(ctx, s.app.caller())
	if err != nil {
		return err
	}
	defer release()
	settings := v.Host.Settings().Gateway
	if s.app.env.getenv("GOMEMLIMIT") == "" { // the garbage collector works harder before that
		debug.SetMemoryLimit(s.memory(settings) + ballast)
	}
	if listener == nil {
		if listener, err = s.listen(ctx, settings.Listen); err != nil {
			return err
		}
		defer listener.Close()
	}
	s.mu.Lock()
	g := s.gateways[v.Host]
	s.mu.Unlock()
	if s.flags.noAuth {
		s.app.sayNoAuth()
	}
	site, err := s.site(ctx, v.Host, g, listener, s.flags.noAuth)
	if err != nil {
		return err
	}
	if err := s.offerMetrics(ctx); err != nil {
		return err
	}
	wait := s.becomeDaemon(ctx, listener.URL)
	s.reports.Go(func() {
		client := control.InProcess(v.Host)
		defer client.Close()
		s.app.greet(ctx, client, greeting{url: listener.URL, metrics: s.metricsURL, auth: !s.flags.noAuth})
	})
	err = site.Serve(ctx, listener)
	return errors.Join(err, wait())
}

func (s *serving) listen(ctx context.Context, address string) (*gateway.Listener, error) {
	l, err := gateway.Listen(ctx, gateway.ListenOptions{
		Address:  address,
		CertFile: s.flags.tlsCert, KeyFile: s.flags.tlsKey,
		Insecure: s.flags.insecureBind, NoAuth: s.flags.noAuth,
	})
	return l, s.app.whoServes(ctx, address, err)
}

// whoServes says so if the reason why an address cannot be listened on is that a
// Patchbay does.
func (a *app) whoServes(ctx context.Context, address string, err error) error {
	if err == nil || kindOf(err) != patchbay.KindTransport || !a.servedAlready(ctx, address) {
		return err
	}
	e := &patchbay.Error{
		Kind: patchbay.KindTransport, Message: fmt.Sprintf("Patchbay serves %s already.", address),
		Hint: "Agents can use that one, and `patchbay list` shows its servers. For a second one give another address, such as --http 127.0.0.1:0.",
	}
	if c, err := a.anyDaemon(ctx); err == nil {
		defer c.Close()
		_, port, _ := net.SplitHostPort(address) // it was listened on
		d, _ := c.Daemon()
		status, _ := c.Status(ctx) // of another build that has none, it is empty
		for _, l := range append(status.Listeners, control.Listener{URL: d.Serving, PID: d.PID}) {
			if port != "" && strings.HasSuffix(l.URL, ":"+port) {
				e.Message = fmt.Sprintf("Patchbay serves %s already (process %d).", address, l.PID)
			}
		}
	}
	return e
}

// servedAlready reports whether it is a Patchbay that has an address.
func (a *app) servedAlready(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/mcp", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return strings.Contains(resp.Header.Get("WWW-Authenticate"), `realm="patchbay"`)
}

// memory is how much the process may use.
func (s *serving) memory(settings config.Gateway) int64 {
	if s.flags.memory != "" {
		settings.Memory = s.flags.memory
	}
	return settings.MemoryLimit()
}

// site puts together who may reach a gateway and under which names.
func (s *serving) site(ctx context.Context, h *patchbay.Host, g *gateway.Gateway, l *gateway.Listener, noAuth bool) (*gateway.Site, error) {
	settings := h.Settings().Gateway
	site := &gateway.Site{Gateway: g, Hosts: settings.AllowedHosts, Origins: settings.AllowedOrigins}
	if !l.Loopback && len(site.Hosts) == 0 {
		site.Hosts = []string{"*"} // every request is authenticated, and who knows what this machine is called
	}
	if name, ok := hostOf(settings.URL); ok {
		site.Hosts = append(slices.Clone(site.Hosts), name)
	}
	if noAuth {
		return site, nil
	}
	if _, err := h.GatewayToken(ctx); err != nil { // now, not with the first request
		return nil, err
	}
	site.Auth = gateway.NewAuth(gateway.AuthOptions{Token: h.GatewayToken, OIDC: settings.OIDC, URL: cmp.Or(settings.URL, l.URL), Logger: s.log, Now: s.app.env.Now, Getenv: s.app.env.getenv})
	return site, nil
}

func (a *app) sayNoAuth() {
	a.say("--no-auth: every program on this machine can use your servers")
}

// hostOf returns the host, and port if it has one, of a URL without a path.
func hostOf(address string) (string, bool) {
	_, host, ok := strings.Cut(address, "://")
	return host, ok
}

// becomeDaemon serves the control socket, if nobody else does.
func (s *serving) becomeDaemon(ctx context.Context, url string) (wait func() error) {
	if s.app.alone() {
		return func() error { return nil }
	}
	path, self, err := s.app.daemonPlace()
	var socket *control.Socket
	if err == nil {
		socket, err = control.Own(path)
	}
	if errors.Is(err, control.ErrOwned) {
		s.app.say("a daemon is running; commands and stdio clients use that one's servers, not these")
	} else if err != nil {
		s.app.say("other commands cannot use the servers of this process: %v", err)
	}
	if err != nil {
		return func() error { return nil }
	}
	d := s.daemon()
	self.Version, self.Foreground, self.Serving = s.app.build(), true, url
	d.Identity = self
	served := make(chan error, 1)
	go func() {
		_, err := d.Serve(ctx, socket)
		served <- err
	}()
	return func() error { return <-served }
}

const (
	// settleTime is how long servers may take before they are reported as they
	// are.
	settleTime = 3 * time.Second

	// listsFirst is how long a report waits before it asks for servers. Those that
	// are known from earlier connect at once then, and the agent that started this
	// wants its list before.
	listsFirst = 250 * time.Millisecond
)

// settle waits until every server has either connected or said why not, within
// reason.
func settle(ctx context.Context, wait func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	select {
	case <-time.After(listsFirst):
	case <-ctx.Done():
	}
	_ = wait(ctx) // whoever takes longer is shown as connecting
}

// offeredOf are the servers in force.
func offeredOf(servers []patchbay.ServerStatus) []patchbay.ServerStatus {
	return slices.DeleteFunc(servers, func(st patchbay.ServerStatus) bool { return !st.InForce || st.Skip != "" })
}

// needsOf returns what a person has to do, once that is known.
func needsOf(ctx context.Context, h *patchbay.Host) (needs []string) {
	settle(ctx, func(ctx context.Context) error { return h.Wait(ctx) })
	for _, st := range offeredOf(h.Servers()) {
		if need, ok := needOf(st); ok {
			needs = append(needs, need)
		}
	}
	for _, pr := range wrongFiles(h.Snapshot()) {
		needs = append(needs, fmt.Sprintf("%s: %s", pr.Severity, pr))
	}
	return needs
}

// wrongFiles are the problems of files as a whole: what they were meant to say is
// missing, and no server shows it.
func wrongFiles(snap patchbay.Snapshot) []config.Problem {
	return slices.DeleteFunc(slices.Clone(snap.Problems), func(pr config.Problem) bool { return pr.Severity == config.SeverityNote })
}

// needOf says what a person has to do before a server can be used, and how.
func needOf(st patchbay.ServerStatus) (string, bool) {
	name := shellName(st.Name)
	switch st.State {
	case config.NeedsApproval:
		return name + " needs your approval: patchbay approve " + name, true
	case config.NeedsAuth:
		return name + " needs authentication: patchbay test " + name + " shows what it asks for", true
	case config.Failed:
		if st.NeedsInput() {
			return name + " " + st.Reason, true
		}
		return name + " failed: " + strings.TrimSuffix(st.Reason, ".") + "; see patchbay test " + name, true
	}
	if st.Pins != nil { // before what a server can bring about to hide it
		return name + ": " + st.Pins.String() + "; see patchbay approve --tools " + name, true
	}
	if err := unlisted(st, ""); err != nil {
		return name + ": " + st.Unlisted[0].Method + " failed: " + st.Unlisted[0].Reason + "; see patchbay test " + name, true
	}
	if st.StrayOutput != "" {
		return name + " " + strayOutput(st) + "; its authors should log to standard error", true
	}
	return "", false
}

// strayOutput says that a server printed what it must not.
func strayOutput(st patchbay.ServerStatus) string {
	return fmt.Sprintf("printed %q on its standard output, where only messages belong", st.StrayOutput)
}

// shellName is the name of a server as it is written on a command line.
func shellName(name string) string {
	if name == plainName(name) {
		return name
	}
	return shellQuote(name)
}

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func jsonText(s string) string {
	text, _ := json.Marshal(s) // texts always marshal
	return string(text)
}

// serveReport is what the command prints as JSON.
type serveReport struct {
	URL      string                  `json:"url"` // of everything
	Servers  []patchbay.ServerStatus `json:"servers"`
	Problems []config.Problem        `json:"problems,omitempty"` // of files as a whole
}

// greeting is what is told when a gateway listens.
type greeting struct {
	url     string
	metrics string // their URL; empty if there are none
	auth    bool   // clients present the token
	daemon  int    // the process that listens; 0 for this one
}

// greet tells what is served, what there is to do, and how to connect agents.
func (a *app) greet(ctx context.Context, c *control.Client, g greeting) {
	if a.quiet && !a.json {
		return
	}
	settle(ctx, c.Wait)
	snap, err := c.Snapshot(ctx, false)
	if err != nil {
		return // whoever was asked has ended, which is told elsewhere
	}
	servers, wrong := offeredOf(snap.Servers), wrongFiles(snap)
	if a.json {
		_ = writeJSON(a.env.Stdout, serveReport{g.url + "/mcp", servers, wrong}) // nobody reads it, then
		return
	}
	p := a.printer()
	p.line("Serving %s (Ctrl-C ends it)", g.url+"/mcp")
	if g.daemon > 0 {
		p.line("The daemon listens (process %d), whose servers all agents share.", g.daemon)
	}
	if g.metrics != "" {
		p.line("Metrics %s", g.metrics)
	}
	p.line("")
	p.offered(servers, snap.Hooks)
	p.wrong(wrong)
	self := a.itself()
	p.line("\nConnect an agent; each gets all of these:")
	p.connectLines(self, g.url+"/mcp", g.auth)
	if self.temporary {
		p.line("\n%s The HTTP lines work as long as this runs.", installFirst)
	}
	_, _ = io.WriteString(a.env.Stdout, p.String()) // nobody reads it, then
	a.follow(ctx, c, servers, wrong)
}

// offered lists the servers that clients get to see, and what keeps others from
// it.
func (p *printer) offered(servers []patchbay.ServerStatus, hooks *patchbay.HooksStatus) {
	var rows [][]cell
	var needs []string
	for _, st := range servers {
		rows = append(rows, []cell{{text: st.Name}, p.stateCell(st), toolCount(st), {text: st.Origin.Product + ", " + p.place(st.Origin)}})
		if need, ok := needOf(st); ok {
			needs = append(needs, need)
		}
	}
	if len(servers) == 0 {
		p.line("No servers are configured yet; `patchbay add` adds one, and agents see it at once.")
	} else {
		p.table([]string{"SERVER", "STATE", "TOOLS", "FROM"}, rows)
	}
	if hooks != nil && hooks.State == config.NeedsApproval {
		needs = append(needs, "the project's hooks need your approval: patchbay approve --hooks")
	}
	if len(needs) > 0 {
		p.line("\nTo do:")
		for _, need := range needs {
			p.line("  %s", need)
		}
	}
}

// connectLines says what to type to connect each agent.
func (p *printer) connectLines(self itself, url string, auth bool) {
	program := self.command()
	start := program + " serve --stdio"
	entry := `{"command": ` + jsonText(self.program()) + `, "args": ["serve", "--stdio"]}`
	token := "$(" + program + " token)"
	if self.temporary {
		token = "$(" + goRun + " token)"
	}
	bearer := ` -H "Authorization: Bearer ` + token + `"`
	if !auth {
		bearer = ""
	}
	var rows [][2]string
	if !self.temporary {
		rows = append(rows,
			[2]string{"any of " + count(len(patchbay.InstallableProducts()), "product", "products"), program + " install <product>"},
			[2]string{"Claude Code", "claude mcp add -s user patchbay -- " + start},
			[2]string{"Codex", "codex mcp add patchbay -- " + start},
			[2]string{"Gemini CLI", "gemini mcp add -s user patchbay " + program + " serve -- --stdio"},
			[2]string{"VS Code", "code --add-mcp " + shellQuote(`{"name": "patchbay", `+entry[1:])},
			[2]string{"Cursor", `"patchbay": ` + entry + "  in mcpServers of ~/.cursor/mcp.json"},
			[2]string{"others", "the command " + start},
		)
	}
	rows = append(rows,
		[2]string{"Claude Code, HTTP", "claude mcp add -s user -t http patchbay " + url + bearer},
		[2]string{"others, HTTP", url + "  with the header Authorization: Bearer " + token},
	)
	if !auth {
		rows[len(rows)-1][1] = url
	}
	widest := 0
	for _, r := range rows {
		widest = max(widest, len(r[0]))
	}
	for _, r := range rows {
		p.whole("  %s%s  %s", r[0], strings.Repeat(" ", widest-len(r[0])), r[1])
	}
}
