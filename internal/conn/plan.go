package conn

// action is what becomes of a server when other targets are applied.
type action uint8

const (
	keep    action = iota + 1 // its connection stays; the rest of its target may be new
	start                     // it is new
	restart                   // it is reached differently, or switched on or off
	stop                      // it is not wanted any more
)

// plan says what to do with each server to get from have to want.
func plan(want, have map[string]Target) map[string]action {
	acts := make(map[string]action, len(want))
	for name, w := range want {
		h, exists := have[name]
		switch {
		case !exists:
			acts[name] = start
		case w.off() != h.off() || w.off() && (w.State != h.State || w.Reason != h.Reason):
			acts[name] = restart
		case !w.off() && w.ConnectHash != h.ConnectHash:
			acts[name] = restart
		default:
			acts[name] = keep
		}
	}
	for name := range have {
		if _, wanted := want[name]; !wanted {
			acts[name] = stop
		}
	}
	return acts
}
