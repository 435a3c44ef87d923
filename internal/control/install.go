package control

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay"
)

// Install writes an entry for Patchbay into a product's file.
func (c *Client) Install(ctx context.Context, req patchbay.InstallRequest) (i patchbay.Installation, err error) {
	return i, c.call(ctx, "POST", "/v1/install", req, &i)
}

func install(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.InstallRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Install(r.Context(), req)
}

// Uninstall removes the entry for Patchbay from a product's file.
func (c *Client) Uninstall(ctx context.Context, req patchbay.InstallRequest) (i patchbay.Installation, err error) {
	return i, c.call(ctx, "POST", "/v1/uninstall", req, &i)
}

func uninstall(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.InstallRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Uninstall(r.Context(), req)
}
