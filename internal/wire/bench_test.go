//go:build unix

package wire

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkStdioClient measures what a call costs the client: our peer and the
// SDK's client, each with the same SDK server as its child. cpu-µs/op is the
// processor time of this process alone. The time limit is longer than the minute
// for which a busy SDK server can stand still.
func BenchmarkStdioClient(b *testing.B) {
	for _, size := range []struct {
		name string
		text string
	}{{"100B", strings.Repeat("x", 100)}, {"1MiB", strings.Repeat("x", 1<<20)}} {
		b.Run(size.name+"/wire", func(b *testing.B) {
			p := NewPeer(startChild(b, "sdk"), nil, nil)
			defer p.Close()
			initialize(b, p)
			params := json.RawMessage(`{"name":"echo","arguments":{"text":"` + size.text + `"}}`)
			measure(b, func() error {
				_, err := p.Call(b.Context(), Call{Method: "tools/call", Params: params, Timeout: 2 * time.Minute})
				return err
			})
		})
		b.Run(size.name+"/sdk", func(b *testing.B) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childRole+"=sdk")
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
			session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: Version20251125})
			if err != nil {
				b.Fatal(err)
			}
			defer session.Close()
			params := &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"text":"` + size.text + `"}`)}
			measure(b, func() error {
				_, err := session.CallTool(b.Context(), params)
				return err
			})
		})
	}
}

// measure runs f and reports the processor time it takes.
func measure(b *testing.B, f func() error) {
	if err := f(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	start := processorTime(b)
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-start).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
