package control

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay"
)

// Adopt takes the place of a product's own servers.
func (c *Client) Adopt(ctx context.Context, req patchbay.AdoptRequest) (a patchbay.Adoption, err error) {
	return a, c.call(ctx, "POST", "/v1/adopt", req, &a)
}

func adopt(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.AdoptRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Adopt(r.Context(), req)
}

// Release gives a product's own servers back to it.
func (c *Client) Release(ctx context.Context, req patchbay.AdoptRequest) (a patchbay.Adoption, err error) {
	return a, c.call(ctx, "POST", "/v1/release", req, &a)
}

func release(h *patchbay.Host, r *http.Request) (any, error) {
	req, err := decode[patchbay.AdoptRequest](r)
	if err != nil {
		return nil, err
	}
	return h.Release(r.Context(), req)
}
