package patchbay_test

import (
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/config"
)

// blackhole takes a port of the loopback address of IPv6 and answers nobody: its
// queue is full, so the system drops who comes. It reports false if somebody has
// the port already. On a machine without IPv6 there is nothing to take.
func blackhole(t *testing.T, port int) bool {
	t.Helper()
	socket := func(flags int) int {
		fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		return fd
	}
	address := &syscall.SockaddrInet6{Port: port, Addr: [16]byte(net.IPv6loopback)}
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return true
	}
	fd := socket(0)
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 1); err != nil {
		t.Fatal(err)
	}
	switch err := syscall.Bind(fd, address); err {
	case nil:
	case syscall.EADDRINUSE:
		return false
	case syscall.EADDRNOTAVAIL: // IPv6 is switched off
		return true
	default:
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := syscall.Connect(socket(syscall.SOCK_NONBLOCK), address); err != nil && err != syscall.EINPROGRESS {
			t.Fatal(err)
		}
	}
	return true
}

// Row 29: a server whose IPv6 address leads nowhere is reached by its other one
// without waiting for the first to time out.
func TestIPv6Blackhole(t *testing.T) {
	leavesNothing(t)
	port := 0
	for taken := true; taken; {
		web := httptest.NewServer(greeter)
		t.Cleanup(web.Close)
		port = web.Listener.Addr().(*net.TCPAddr).Port
		taken = !blackhole(t, port)
	}
	named(t, map[string][2]net.IP{"dual.example.test": {net.IPv4(127, 0, 0, 1), net.IPv6loopback}})
	// Half of the ten seconds that a dial may take would go to the first address
	// if the other had to wait for it.
	h := withServers(t, map[string]config.Server{
		"web": {Type: config.HTTP, URL: "http://dual.example.test:" + strconv.Itoa(port) + "/mcp", ConnectTimeout: new(int64(4000))},
	}, nil)
	if err := h.Connect(t.Context(), "web"); err != nil {
		t.Error(err)
	}
}
