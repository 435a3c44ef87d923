package config

// The status words of other hosts, for programs that speak their language.

// Claude returns the word that Claude Code and Qoder have for the state.
func (s State) Claude() string {
	if s == NeedsApproval {
		return "pending"
	}
	return string(s) // the others are theirs
}

// Electric returns the word that electric's registry has for the state.
func (s State) Electric() string {
	switch s {
	case Connected:
		return "ready"
	case NeedsAuth:
		return "authenticating"
	case Failed:
		return "error"
	case Disabled, NeedsApproval:
		return "disabled"
	default:
		return "connecting"
	}
}

// Xcsh returns the word that xcsh has for the state.
func (s State) Xcsh() string {
	switch s {
	case Connected:
		return "connected"
	case Pending, Connecting:
		return "connecting"
	default:
		return "disconnected"
	}
}
