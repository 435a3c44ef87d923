package patchbay

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/config"
	"github.com/patchbay-mcp/patchbay/internal/atomicfile"
)

// tokenBytes of chance are in a token.
const tokenBytes = 32

func (p places) tokenFile() string { return filepath.Join(p.state, "gateway-token") }

// GatewayToken returns the token that clients of the gateway present over HTTP.
// The first call makes it. It is the same for every project of the user.
func (h *Host) GatewayToken(ctx context.Context) (config.Secret, error) {
	path := h.places().tokenFile()
	token, err := h.keepToken(ctx, path)
	if _, ours := errors.AsType[*Error](err); err != nil && !ours && ctx.Err() == nil {
		return token, errorf(KindConfigInvalid, "The gateway's token cannot be kept: %v", err).
			hint("%s must be a directory that you can write to, on a disk that is not full.", filepath.Dir(path))
	}
	return token, err
}

// keepToken reads the token, or makes it.
func (h *Host) keepToken(ctx context.Context, path string) (config.Secret, error) {
	if err := h.checkTokenFile(path); err != nil {
		return config.Secret{}, err
	}
	token := ""
	fresh := newToken()
	read := func(old []byte) ([]byte, error) {
		if token = strings.TrimSpace(string(old)); len(old) == 0 {
			token = fresh
			return []byte(fresh + "\n"), nil
		}
		if !validToken(token) {
			return nil, errorf(KindConfigInvalid, "%s is damaged.", path).hint("`patchbay token --rotate` makes a new one.")
		}
		return nil, nil
	}
	data, err := atomicfile.Read(path, 1024)
	if err == nil && len(data) > 0 {
		_, err = read(data)
	} else if err == nil || errors.Is(err, fs.ErrNotExist) {
		_, err = atomicfile.Update(ctx, path, h.ownFile(), read)
	}
	if err != nil {
		return config.Secret{}, err
	}
	return config.NewSecret(token), nil
}

// RotateGatewayToken replaces the token by a new one. Gateways that run notice
// within a second, and the old one is worth nothing from then on.
func (h *Host) RotateGatewayToken(ctx context.Context) (config.Secret, error) {
	path := h.places().tokenFile()
	// Whoever could read the old file must not be able to read the new one, so
	// nothing of it is kept.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return config.Secret{}, err
	}
	return h.GatewayToken(ctx)
}

// checkTokenFile refuses a token that others may know.
func (h *Host) checkTokenFile(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	why := ""
	switch {
	case !info.Mode().IsRegular():
		why = "is not a regular file"
	case !ownedByUser(info):
		why = "belongs to another user"
	case !private(info):
		why = "can be read by other users"
	default:
		return nil
	}
	return errorf(KindConfigInvalid, "%s %s.", path, why).hint("`patchbay token --rotate` makes a new one.")
}

func newToken() string {
	chance := make([]byte, tokenBytes)
	_, _ = rand.Read(chance) // never fails
	return config.GatewayTokenPrefix + base64.RawURLEncoding.EncodeToString(chance)
}

func validToken(s string) bool {
	rest, ok := strings.CutPrefix(s, config.GatewayTokenPrefix)
	chance, err := base64.RawURLEncoding.DecodeString(rest)
	return ok && err == nil && len(chance) == tokenBytes
}
