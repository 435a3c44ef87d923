package gateway

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay"
)

// certificate is the one a gateway shows. It is renewed more often than gateways
// are restarted, so its files are looked at with every handshake.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  [2]fileStamp
}

type fileStamp struct {
	time time.Time
	size int64
}

func newCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	c.stamp = c.stamps()
	if err := c.load(); err != nil {
		return nil, &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: fmt.Sprintf("The TLS certificate cannot be used: %v", err)}
	}
	return c, nil
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.loaded = &pair
	}
	return err
}

func (c *certificate) stamps() (s [2]fileStamp) {
	for i, file := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(file); err == nil {
			s[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

// get is for tls.Config. While the files do not fit together, as when one of the
// two is written, the last that did is shown.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.stamps(); now != c.stamp && c.load() == nil {
		c.stamp = now
	}
	return c.loaded, nil
}
