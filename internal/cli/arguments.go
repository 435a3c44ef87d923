package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxArguments bounds the arguments that are read from standard input.
const maxArguments = 64 << 20

// toolArgs are the arguments of a call as they are given on a command line.
type toolArgs struct {
	members map[string]json.RawMessage
	texts   []string // names of those given as k=v
}

// parseToolArgs collects arguments: those on standard input if a word is "-",
// then those of object, then the words k=v, whose value is a string, and
// k:=json. Later ones win.
func parseToolArgs(words []string, object string, stdin io.Reader) (toolArgs, error) {
	args := toolArgs{members: map[string]json.RawMessage{}}
	pairs := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "-" })
	switch len(words) - len(pairs) {
	case 0:
	case 1:
		data, err := io.ReadAll(io.LimitReader(stdin, maxArguments+1))
		if err == nil && len(data) > maxArguments {
			err = fmt.Errorf("more than %d MiB", maxArguments>>20)
		}
		if err == nil {
			err = args.addObject(data)
		}
		if err != nil {
			return args, fmt.Errorf("standard input: %w", err)
		}
	default:
		return args, errors.New("standard input can be read only once")
	}
	if object != "" {
		if err := args.addObject([]byte(object)); err != nil {
			return args, fmt.Errorf("--args: %w", err)
		}
	}
	for _, p := range pairs {
		if err := args.addPair(p); err != nil {
			return args, err
		}
	}
	return args, nil
}

func (a *toolArgs) addObject(data []byte) error {
	var members map[string]json.RawMessage
	err := json.Unmarshal(data, &members)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("not a JSON object, but of type %s", wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if members == nil { // null is not an object either
		return errors.New("not a JSON object")
	}
	for name, value := range members {
		a.members[name] = value
	}
	return nil
}

func (a *toolArgs) addPair(pair string) error {
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		return fmt.Errorf("argument %q is neither name=text nor name:=json", pair)
	}
	name, isJSON := strings.CutSuffix(name, ":")
	if name == "" {
		return fmt.Errorf("argument %q has no name", pair)
	}
	if isJSON {
		if !json.Valid([]byte(value)) {
			return fmt.Errorf("argument %q: %s is not JSON; for a text write %s=…", pair, value, name)
		}
		a.members[name] = json.RawMessage(value)
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	a.members[name] = text
	a.texts = append(a.texts, name)
	return nil
}

// object is the arguments as the tool gets them.
func (a toolArgs) object() (json.RawMessage, error) { return json.Marshal(a.members) }

// parsePromptArgs reads words k=v.
func parsePromptArgs(words []string) (map[string]string, error) {
	args := map[string]string{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("argument %q is not name=text", w)
		}
		args[name] = value
	}
	return args, nil
}
