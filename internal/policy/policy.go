// Package policy decides, without doing: whether an entry may be used given
// where it comes from and what a person approved, and what that person is shown
// before deciding; then, for each tool, whether it is visible, whether a call
// of it is allowed, and whether its definition is still the accepted one. Its
// functions are pure and know no file system; what only the file system can
// tell is passed in.
//
// The path of one entry:
//
//	LaunchOf      what an approval of the entry covers        launch.go
//	ApprovalHash  the one number that stands for all of it    hash.go
//	Trust         the entry's standing, given the approvals   trust.go
//	Describe      the text a person reads before approving    describe.go
//
// The path of one tool:
//
//	Hidden        whether any list has it                     decide.go
//	Decide        what the rules say about a call of it       decide.go, rules.go
//	Pins          whether its definition is the accepted one  pins.go
//	Pins.Diff     the text a person reads before accepting    pindiff.go
package policy
