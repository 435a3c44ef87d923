package patchbay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// rpcServer is the smallest Streamable HTTP server of the older era: it answers
// each method with the result that answer returns, and refuses what belongs to
// the newer era.
func rpcServer(answer func(method string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "server/discover":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer(m.Method))
		}
	})
}

// peekMethod returns the method of a message without consuming it.
func peekMethod(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m struct{ Method string }
	if err != nil || json.Unmarshal(body, &m) != nil {
		return ""
	}
	return m.Method
}
