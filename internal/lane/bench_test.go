package lane

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// What a small request costs, client included, with the lane and without it.
func BenchmarkRequest(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		io.ReadFull(r.Body, body)
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Content-Length"] = []string{"4"}
		w.Write(body[:4])
	})
	type server interface {
		Serve(net.Listener) error
		Close() error
	}
	for name, in := range map[string]func(*http.Server) server{
		"lane":    func(s *http.Server) server { return New(s) },
		"nethttp": func(s *http.Server) server { return s },
	} {
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			config, _ := settings(handler)
			s, served := in(config), make(chan error)
			go func() { served <- s.Serve(l) }()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			text, reader := []byte(plainHeads[1]+string(make([]byte, 113))), bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(text); err != nil {
					b.Fatal(err)
				}
				for {
					line, err := reader.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					if len(line) == 2 {
						break
					}
				}
				if _, err := reader.Discard(4); err != nil {
					b.Fatal(err)
				}
			}
			conn.Close()
			s.Close()
			<-served
		})
	}
}
