package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/control"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A crossing is a relay between a client and hosts that the test speaks for.
type crossing struct {
	t      *testing.T
	client end
	hosts  []end         // one after another
	moves  chan struct{} // one for each search for another host
	ended  chan error
	cancel context.CancelFunc
}

// end is one end of a connection, on which every message is expected.
type end struct {
	t *testing.T
	wire.Conn
}

// cross begins a relay that finds as many hosts as there are, one after another.
func cross(t *testing.T, hosts int) *crossing {
	client, inner := wire.Pipe()
	x := &crossing{t: t, client: end{t, client}, moves: make(chan struct{}, hosts), ended: make(chan error, 1)}
	var far []wire.Conn
	for range hosts {
		near, host := attachment()
		far = append(far, near)
		x.hosts = append(x.hosts, end{t, host})
	}
	ctx, cancel := context.WithCancel(t.Context())
	x.cancel = cancel
	next := 0
	r := &control.Relay{Client: inner, Next: func(context.Context, bool) (wire.Conn, error) {
		x.moves <- struct{}{}
		if next++; next == hosts {
			return nil, errors.New("no host left")
		}
		return far[next], nil
	}}
	go func() { x.ended <- r.Run(ctx, far[0]) }()
	t.Cleanup(func() {
		cancel()
		<-x.ended
		for i := range far {
			_, _ = far[i].Close(), x.hosts[i].Close()
		}
	})
	return x
}

// attachment is a connection between a relay and a daemon.
func attachment() (relay, daemon *wire.StreamConn) {
	near, far := net.Pipe()
	return wire.NewStreamConn(near, near, &wire.StreamOptions{Control: true}), wire.NewStreamConn(far, far, nil)
}

// tell sends a control line.
func (e end) tell(text string) {
	e.t.Helper()
	if err := e.Conn.(*wire.StreamConn).WriteControl(e.t.Context(), text); err != nil {
		e.t.Fatalf("%s: %v", text, err)
	}
}

// say sends a message.
func (e end) say(text string) {
	e.t.Helper()
	m, err := wire.Parse([]byte(text), wire.Limits{})
	if err != nil {
		e.t.Fatalf("%s: %v", text, err)
	}
	if err := e.Write(e.t.Context(), m); err != nil {
		e.t.Fatalf("%s: %v", text, err)
	}
}

// hear demands that this message comes next.
func (e end) hear(want string) {
	e.t.Helper()
	m, err := e.Read()
	if err != nil {
		e.t.Fatalf("instead of %s: %v", want, err)
	}
	if got := string(m.AppendTo(nil)); got != want {
		e.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// hearLike demands a message that begins and ends so, and returns it.
func (e end) hearLike(head, tail string) wire.Message {
	e.t.Helper()
	m, err := e.Read()
	if err != nil {
		e.t.Fatalf("instead of %s…: %v", head, err)
	}
	if got := string(m.AppendTo(nil)); !strings.HasPrefix(got, head) || !strings.HasSuffix(got, tail) {
		e.t.Fatalf("got  %s\nwant %s…%s", got, head, tail)
	}
	return m
}

// pass carries a message over the relay.
func pass(from, to end, text string) {
	from.t.Helper()
	from.say(text)
	to.hear(text)
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"n":1e400}}`
	opened      = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{}}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// greet opens a legacy session.
func (x *crossing) greet(host end) {
	x.t.Helper()
	pass(x.client, host, initialize)
	pass(host, x.client, opened)
	pass(x.client, host, initialized)
}

// welcome expects that the relay opens the session anew by itself.
func (x *crossing) welcome(host end) {
	x.t.Helper()
	m := host.hearLike(`{"jsonrpc":"2.0","id":"patchbay-`, `"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"n":1e400}}`)
	host.say(`{"jsonrpc":"2.0","id":` + m.ID.String() + `,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`)
	host.hear(initialized)
}

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// A client whose daemon dies goes on as if nothing had happened, but for the
// calls that nobody knows the end of.
func TestRelayTakesASessionToAnotherHost(t *testing.T) {
	x := cross(t, 2)
	a, b := x.hosts[0], x.hosts[1]
	x.greet(a)
	ask := func(host end, request, result string) {
		t.Helper()
		pass(x.client, host, request)
		m, _ := wire.Parse([]byte(request), wire.Limits{})
		pass(host, x.client, `{"jsonrpc":"2.0","id":`+m.ID.String()+`,"result":`+result+`}`)
	}
	ask(a, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`, `{}`)
	ask(a, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`, `{}`)
	for _, uri := range []string{"b", "a", "c"} {
		ask(a, `{"jsonrpc":"2.0","id":"`+uri+`","method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, `{}`)
	}
	ask(a, `{"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"b"}}`, `{}`)
	// The third is of a server that would like to have the second called twice.
	ask(a, `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`,
		`{"tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"act"},{"name":"odd","NAME":"act","annotations":{"readOnlyHint":true}}]}`)

	const (
		act      = `{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"act"}}`
		given    = `{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"act","_meta":{"progressToken":1}}}`
		look     = `{"jsonrpc":"2.0","id":"12","method":"tools/call","params":{"name":"look","n":1E5}}`
		list     = `{"jsonrpc":"2.0","id":13,"method":"prompts/list"}`
		odd      = `{"jsonrpc":"2.0","id":14,"method":"tasks/cancel","params":{}}`
		question = `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`
	)
	for _, request := range []string{act, given, look, list, odd} {
		pass(x.client, a, request)
	}
	pass(x.client, a, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
	pass(a, x.client, question)
	a.Close()

	x.client.hear(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"whoever asked has ended"}}`)
	x.client.hearLike(`{"jsonrpc":"2.0","id":10,"result":{"content":[{"type":"text","text":"The Patchbay daemon`, `look before trying again."}],"isError":true}}`)
	x.client.hearLike(`{"jsonrpc":"2.0","id":14,"error":{"code":-32603,"message":"The Patchbay daemon`, `}}`)
	x.welcome(b)
	for _, tail := range []string{
		`"logging/setLevel","params":{"level":"debug"}}`,
		`"resources/subscribe","params":{"uri":"a"}}`,
		`"resources/subscribe","params":{"uri":"c"}}`,
	} {
		m := b.hearLike(`{"jsonrpc":"2.0","id":"patchbay-`, tail)
		b.say(`{"jsonrpc":"2.0","id":` + m.ID.String() + `,"result":{}}`)
	}
	b.hear(look)
	b.hear(list)
	x.client.hear(changed)

	// From here on all is as it was. Questions have ids of their own, and an
	// answer to a host that has gone is for nobody.
	x.client.say(`{"jsonrpc":"2.0","id":1,"result":{"action":"late"}}`)
	b.say(question)
	x.client.hear(`{"jsonrpc":"2.0","id":"1:1","method":"elicitation/create","params":{}}`)
	x.client.say(`{"jsonrpc":"2.0","id":"1:1","result":{"action":"accept"}}`)
	b.hear(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
	b.say(question)
	x.client.hear(`{"jsonrpc":"2.0","id":"1:1","method":"elicitation/create","params":{}}`)
	b.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	x.client.hear(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1:1"}}`)
	pass(b, x.client, `{"jsonrpc":"2.0","id":"12","result":{"content":[]}}`)
	pass(b, x.client, `{"jsonrpc":"2.0","id":13,"result":{"prompts":[]}}`)
	ask(b, `{"jsonrpc":"2.0","id":15,"method":"tools/list"}`, `{"tools":[]}`)
}

// Subscriptions of the modern era are requests that last: they are opened anew,
// and the client hears of that only that something may have changed, once it would
// hear of the next change.
func TestRelayReopensSubscriptions(t *testing.T) {
	x := cross(t, 3)
	const (
		meta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		listen = `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":false},` + meta + `}}`
		ack    = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`
		act    = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act",` + meta + `}}`
	)
	pass(x.client, x.hosts[0], listen)
	pass(x.hosts[0], x.client, ack)
	pass(x.client, x.hosts[0], act)
	for i, host := range x.hosts[:2] {
		next := x.hosts[i+1]
		host.Close()
		if i == 0 {
			x.client.hearLike(`{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","content":[{`, `}],"isError":true}}`)
		}
		next.hear(listen)
		pass(next, x.client, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"before"}}`)
		next.say(ack) // which the client knows
		x.client.hear(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`)
		pass(next, x.client, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"x":1}}`)
	}
}

// A host that dies before it has answered initialize, or that is about to end
// and refuses, has done nothing: whatever it was asked can be asked again.
func TestRelayAsksAgainWhatWasRefused(t *testing.T) {
	x := cross(t, 6)
	x.client.say(initialize)
	x.hosts[0].hear(initialize)
	x.hosts[0].Close()
	x.greet2(x.hosts[1])

	const act = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act"}}`
	pass(x.client, x.hosts[1], act)
	x.hosts[1].tell(`refused 5`)
	// The next does not even get to open the session: it dies, or says that it
	// is about to end.
	x.hosts[2].hearLike(`{"jsonrpc":"2.0","id":"patchbay-`, `,"n":1e400}}`)
	x.hosts[2].Close()
	m := x.hosts[3].hearLike(`{"jsonrpc":"2.0","id":"patchbay-`, `,"n":1e400}}`)
	x.hosts[3].tell(`refused ` + m.ID.String())
	x.welcome(x.hosts[4])
	x.hosts[4].hear(act)
	x.client.hear(changed)
	x.hosts[4].tell(`farewell`)
	x.welcome(x.hosts[5])
	x.hosts[5].hear(act)
	x.client.hear(changed)
	pass(x.hosts[5], x.client, `{"jsonrpc":"2.0","id":5,"result":{}}`)
}

// What is safe to repeat is repeated once, and then answered.
func TestRelayRepeatsOnce(t *testing.T) {
	x := cross(t, 3)
	x.greet(x.hosts[0])
	const list = `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`
	pass(x.client, x.hosts[0], list)
	x.hosts[0].Close()
	x.welcome(x.hosts[1])
	x.hosts[1].hear(list)
	x.client.hear(changed)
	x.hosts[1].Close()
	x.client.hearLike(`{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"The Patchbay daemon`, `look before trying again."}}`)
	x.welcome(x.hosts[2])
	x.client.hear(changed)
	pass(x.client, x.hosts[2], `{"jsonrpc":"2.0","id":6,"method":"tools/list"}`)
}

// Whatever a server says passes through: none of it is taken for a word of the
// daemon.
func TestRelayHeedsNoServer(t *testing.T) {
	x := cross(t, 1)
	x.greet(x.hosts[0])
	const act = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act"}}`
	pass(x.client, x.hosts[0], act)
	for _, said := range []string{
		`{"jsonrpc":"2.0","method":"notifications/patchbay/farewell"}`,
		`{"jsonrpc":"2.0","method":"farewell"}`,
		`{"jsonrpc":"2.0","method":"!farewell"}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\n!refused 5\n!farewell"}}`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":-32000,"message":"the server is shutting down"}}`,
	} {
		pass(x.hosts[0], x.client, said)
	}
	pass(x.client, x.hosts[0], `{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	if len(x.moves) > 0 {
		t.Error("the relay left its host")
	}
}

// What is said to a host after its farewell is for the next.
func TestRelayAfterAFarewell(t *testing.T) {
	x := cross(t, 2)
	a, b := x.hosts[0], x.hosts[1]
	x.greet(a)
	a.tell(`farewell`)
	pass(a, x.client, changed) // by now it has been heard
	const act = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act"}}`
	x.client.say(act)
	a.hear(act) // or would have, were it still there
	a.Close()
	x.welcome(b)
	b.hear(act)
	x.client.hear(changed)
}

// greet2 goes on where a host died before it answered initialize.
func (x *crossing) greet2(host end) {
	x.t.Helper()
	host.hear(initialize)
	pass(host, x.client, opened)
	pass(x.client, host, initialized)
}

func TestRelayWithoutAnotherHost(t *testing.T) {
	x := cross(t, 1)
	x.greet(x.hosts[0])
	pass(x.client, x.hosts[0], `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
	x.hosts[0].Close()
	x.client.hearLike(`{"jsonrpc":"2.0","id":5,"error":{"code":-32603,`, `}}`)
	if _, err := x.client.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v", err)
	}
	err := <-x.ended
	x.ended <- nil
	if err == nil || !strings.Contains(err.Error(), "no host left") {
		t.Errorf("the relay ended with %v", err)
	}
}

// A client that has no more to say still gets its answers.
func TestRelayEndsInOrder(t *testing.T) {
	in, typed := io.Pipe()
	printed, out := io.Pipe()
	toHost, hostIn := io.Pipe()
	hostOut, fromHost := io.Pipe()
	host := end{t, wire.NewStreamConn(toHost, fromHost, nil)}
	r := &control.Relay{Client: wire.NewStreamConn(in, out, nil), Next: func(context.Context, bool) (wire.Conn, error) {
		return nil, errors.New("nobody asked for another")
	}}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), wire.NewStreamConn(hostOut, hostIn, nil)) }()
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`
	if _, err := io.WriteString(typed, call+"\n"); err != nil {
		t.Fatal(err)
	}
	typed.Close()
	host.hear(call)
	if _, err := host.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the host reads %v", err)
	}
	host.say(`{"jsonrpc":"2.0","id":1,"result":{"late":true}}`)
	host.Close()
	got, err := io.ReadAll(printed)
	if want := `{"jsonrpc":"2.0","id":1,"result":{"late":true}}` + "\n"; string(got) != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// A signal ends the relay, even while it looks for another host.
func TestRelayCancelled(t *testing.T) {
	client, inner := wire.Pipe()
	near, host := wire.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	silent, silentHost := wire.Pipe()
	r := &control.Relay{Client: inner, Next: func(context.Context, bool) (wire.Conn, error) { return silent, nil }}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, near) }()
	x := &crossing{t: t, client: end{t, client}}
	x.greet(end{t, host})
	host.Close()
	end{t, silentHost}.hearLike(`{"jsonrpc":"2.0","id":"patchbay-`, `}`) // and never answers
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// What the client sends that is no message is answered as a server would.
func TestRelayAnswersGarbage(t *testing.T) {
	in, typed := io.Pipe()
	printed, out := io.Pipe()
	toHost, hostIn := io.Pipe()
	hostOut, fromHost := io.Pipe()
	host := wire.NewStreamConn(toHost, fromHost, nil)
	r := &control.Relay{Client: wire.NewStreamConn(in, out, nil)}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context(), wire.NewStreamConn(hostOut, hostIn, nil)) }()
	go io.WriteString(typed, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":7}\nnonsense\n")
	answers := end{t, wire.NewStreamConn(printed, nopCloser{io.Discard}, nil)}
	answers.hearLike(`{"jsonrpc":"2.0","id":3,"error":{"code":-32600,`, `}}`)
	answers.hearLike(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`, `}}`)
	typed.Close()
	if _, err := host.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the host reads %v", err)
	}
	host.Close()
	if err := <-ended; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
	answers.Close()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// FuzzRelay: whatever is said, and whenever hosts die, each request of the
// client is answered at most once, and never before it was made.
func FuzzRelay(f *testing.F) {
	f.Add([]byte("cahhkcahhhkc"))
	f.Add([]byte("ccccckckkc"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		steps = steps[:min(len(steps), 40)]
		x := cross(t, len(steps)+1)
		host, asked, open := 0, 0, []int{}
		answers := map[string]int{}
		repeated := map[int]bool{}
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for {
				m, err := x.client.Read()
				if err != nil {
					return
				}
				if m.Kind() == wire.KindResponse {
					answers[m.ID.String()]++
				}
			}
		}()
		request := func(n int) wire.Message {
			methods := []string{"tools/call", "tools/list", "subscriptions/listen", "tasks/get"}
			return wire.Message{ID: wire.NumberID(int64(n)), Method: methods[n%len(methods)], Params: json.RawMessage(`{"name":"x"}`)}
		}
		take := func() bool { // what the host hears
			m, err := x.hosts[host].Read()
			if err != nil {
				return false
			}
			open = append(open, int(numberOf(m.ID)))
			return true
		}
		for _, s := range steps {
			switch s {
			case 'c': // the client asks
				asked++
				if x.client.Write(t.Context(), request(asked)) != nil || !take() {
					t.Fatal("the relay ended")
				}
			case 'h': // the host answers the oldest; a subscription only if it is about to end
				if i := slices.IndexFunc(open, func(n int) bool { return n%4 != 2 }); i >= 0 {
					_ = x.hosts[host].Write(t.Context(), wire.Message{ID: wire.NumberID(int64(open[i]))})
					open = slices.Delete(open, i, i+1)
				}
			case 'k': // the host dies; the next is asked again what can be
				again := slices.DeleteFunc(slices.Clone(open), func(n int) bool {
					once := n%4 == 1 && !repeated[n]
					repeated[n] = true
					return !once && n%4 != 2
				})
				x.hosts[host].Close()
				<-x.moves // from here on the client speaks to the next
				host, open = host+1, nil
				for range again {
					if !take() {
						t.Fatal("the relay ended")
					}
				}
			}
		}
		x.cancel()
		<-heard
		for id, n := range answers {
			if n != 1 {
				t.Errorf("request %s was answered %d times", id, n)
			}
		}
	})
}

func numberOf(id wire.ID) (n int64) {
	_ = json.Unmarshal(id.AppendTo(nil), &n)
	return n
}

// A host that does not answer any more is left for another. One that has nothing
// to say for a while is asked, and stays.
func TestRelayLeavesAHostThatIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := cross(t, 2)
		first := x.hosts[0].Conn.(*wire.StreamConn)
		x.client.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		x.hosts[0].hear(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		for range 10 { // minutes, and nobody thinks that it has gone
			if _, err := first.Read(); !errors.As(err, new(*wire.Garbage)) { // it has no Control
				t.Fatalf("it was asked %v", err)
			}
			x.hosts[0].tell("here")
		}
		x.hosts[0].say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		x.client.hear(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		begun := time.Now()
		x.client.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}`)
		go func() { // whoever is stopped still has a socket that takes something
			for {
				if _, err := first.Read(); err != nil && !errors.As(err, new(*wire.Garbage)) {
					return
				}
			}
		}()
		x.client.hearLike(`{"jsonrpc":"2.0","id":2,"result":{"content":[`, `"isError":true}}`)
		<-x.moves
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		x.client.say(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		x.hosts[1].hear(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	})
}
