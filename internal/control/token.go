package control

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay"
	"github.com/patchbay-mcp/patchbay/config"
)

// Token returns the gateway's token, a new one if it is to be rotated.
func (c *Client) Token(ctx context.Context, rotate bool) (t config.Secret, err error) {
	return t, c.call(ctx, "POST", "/v1/token", rotate, &t)
}

func token(h *patchbay.Host, r *http.Request) (any, error) {
	rotate, err := decode[bool](r)
	if err != nil {
		return nil, err
	}
	get := h.GatewayToken
	if rotate {
		get = h.RotateGatewayToken
	}
	t, err := get(r.Context())
	return t.Reveal(), err
}
