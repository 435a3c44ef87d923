package wire

// Session is what a Server knows of one client.
type Session struct{}
