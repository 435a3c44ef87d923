package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeSDK runs a server built with the official SDK on conn, until the context
// or the conn ends.
func ServeSDK(ctx context.Context, s *mcp.Server, conn Conn) error {
	return s.Run(ctx, SDKTransport(conn))
}

// SDKTransport lets a server or client of the official SDK speak over conn. It
// can be connected once. Params and results pass unchanged, as far as the SDK
// itself leaves them alone, and so do ids that the SDK could not represent.
func SDKTransport(conn Conn) mcp.Transport { return &sdkTransport{conn} }

type sdkTransport struct{ conn Conn }

func (t *sdkTransport) Connect(context.Context) (mcp.Connection, error) {
	return &sdkConnection{t.conn}, nil
}

type sdkConnection struct{ conn Conn }

// SessionID is empty: there are no sessions on a stream.
func (c *sdkConnection) SessionID() string { return "" }

func (c *sdkConnection) Close() error { return c.conn.Close() }

// Read ignores its context: the SDK ends a Read by closing.
func (c *sdkConnection) Read(context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.conn.Read()
		switch {
		case err == nil:
			return toSDK(m)
		case errors.Is(err, ErrClosed):
			return nil, io.EOF
		}
		if _, ok := errors.AsType[*Garbage](err); !ok {
			return nil, err
		}
	}
}

func (c *sdkConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	m, err := fromSDK(message)
	if err != nil {
		return err
	}
	return c.conn.Write(ctx, m)
}

func toSDK(m Message) (jsonrpc.Message, error) {
	id, err := sdkID(m.ID)
	if err != nil {
		return nil, err
	}
	if m.Method == "" {
		response := &jsonrpc.Response{ID: id, Result: m.Result}
		if m.Error != nil {
			response.Error = &jsonrpc.Error{Code: m.Error.Code, Message: m.Error.Message, Data: m.Error.Data}
		}
		return response, nil
	}
	request := &jsonrpc.Request{ID: id, Method: m.Method, Params: m.Params}
	if m.Method == "notifications/cancelled" {
		request.Params = withSDKRequestID(m.Params)
	}
	return request, nil
}

// withSDKRequestID makes a cancellation name the request as the SDK knows it.
func withSDKRequestID(params json.RawMessage) json.RawMessage {
	raw, ok := Member(params, "requestId")
	if !ok || !isID(raw) {
		return params
	}
	id := parseID(raw)
	alias, ok := sdkAlias(id)
	if !ok {
		return params
	}
	out, err := SetMember(params, AppendString(nil, alias), "requestId")
	if err != nil {
		return params
	}
	return out
}

func fromSDK(message jsonrpc.Message) (Message, error) {
	switch message := message.(type) {
	case *jsonrpc.Request:
		if message.Params != nil {
			if err := Valid(message.Params, Limits{}); err != nil {
				return Message{}, fmt.Errorf("params of %s: %w", message.Method, err)
			}
		}
		return Message{ID: ownID(message.ID), Method: message.Method, Params: message.Params}, nil
	case *jsonrpc.Response:
		m := Message{ID: ownID(message.ID), Result: message.Result}
		if message.Error != nil {
			m.Error = ownError(message)
		} else if err := validResult(message.Result, Limits{}); err != nil {
			m.Error = Errorf(CodeInternal, "the result is %v", err)
		}
		return m, nil
	default:
		return Message{}, fmt.Errorf("unknown message %T", message)
	}
}

// ownError has the SDK encode the error, as it knows its own.
func ownError(response *jsonrpc.Response) *Error {
	text, err := jsonrpc.EncodeMessage(response)
	if err == nil {
		var m Message
		if m, err = Parse(text, Limits{}); err == nil && m.Error != nil {
			return m.Error
		}
	}
	return &Error{Code: CodeInternal, Message: response.Error.Error()}
}

// aliasMark begins the string that stands in for an id which the SDK cannot
// hold: it knows 64-bit integers, which pass through a float64, and strings.
const aliasMark = "\x00"

// sdkAlias returns the stand-in for an id that needs one.
func sdkAlias(id ID) (string, bool) {
	const maxExact = 1 << 53
	if id.kind == idInt && -maxExact <= id.num && id.num <= maxExact || id.IsZero() || id.IsNull() {
		return "", false
	}
	if s, ok := Unquote([]byte(id.text)); ok && StringID(s) == id && !strings.HasPrefix(s, aliasMark) {
		return "", false
	}
	return aliasMark + id.String(), true
}

func sdkID(id ID) (jsonrpc.ID, error) {
	if id.IsZero() || id.IsNull() {
		return jsonrpc.ID{}, nil
	}
	if alias, ok := sdkAlias(id); ok {
		return jsonrpc.MakeID(alias)
	}
	if id.kind == idInt {
		return jsonrpc.MakeID(float64(id.num))
	}
	s, _ := Unquote([]byte(id.text))
	return jsonrpc.MakeID(s)
}

func ownID(id jsonrpc.ID) ID {
	switch value := id.Raw().(type) {
	case int64:
		return NumberID(value)
	case string:
		if raw, ok := strings.CutPrefix(value, aliasMark); ok {
			return parseID([]byte(raw))
		}
		return StringID(value)
	default:
		return ID{}
	}
}
