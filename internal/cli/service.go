package cli

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay"
)

// service is how a service manager runs the daemon, from a login to its end.
type service struct {
	file       string
	text       string
	start, end [][]string // command lines: after the file was written, and before it is removed
}

// serviceMark is in every file that is ours to replace and remove.
const serviceMark = "written by `patchbay install --service`"

// service returns what this system needs.
func (a *app) service() (service, error) {
	self := a.itself()
	switch {
	case self.temporary || self.path == "":
		return service{}, &patchbay.Error{Message: "The service would run a program that is about to be gone.", Hint: installFirst}
	case runtime.GOOS == "linux":
		dir := a.lookup("XDG_CONFIG_HOME")
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(a.env.Home, ".config")
		}
		const unit = "patchbay.service"
		return service{
			file:  filepath.Join(dir, "systemd", "user", unit),
			text:  systemdUnit(self.path),
			start: [][]string{{"systemctl", "--user", "daemon-reload"}, {"systemctl", "--user", "enable", "--now", unit}},
			end:   [][]string{{"systemctl", "--user", "disable", "--now", unit}},
		}, nil
	case runtime.GOOS == "darwin":
		file := filepath.Join(a.env.Home, "Library", "LaunchAgents", launchdLabel+".plist")
		domain := "gui/" + strconv.Itoa(os.Getuid())
		return service{
			file: file, text: launchdPlist(self.path),
			start: [][]string{{"launchctl", "bootstrap", domain, file}},
			end:   [][]string{{"launchctl", "bootout", domain + "/" + launchdLabel}},
		}, nil
	}
	return service{}, &patchbay.Error{Kind: patchbay.KindConfigInvalid, Message: "There is no service for this system.", Hint: "The daemon is started when it is needed, without one."}
}

// systemdUnit is the unit of a user's own service manager. A daemon that was asked
// to end stays so: one of a later build may have taken its place.
func systemdUnit(program string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(program)
	return "# " + serviceMark + `
[Unit]
Description=Patchbay: the MCP servers that agents share

[Service]
ExecStart="` + quoted + `" daemon run
Restart=on-failure

[Install]
WantedBy=default.target
`
}

const launchdLabel = "dev.patchbay.daemon"

func launchdPlist(program string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(program)) // a Builder takes everything
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- ` + serviceMark + ` -->
<plist version="1.0">
<dict>
	<key>Label</key><string>` + launchdLabel + `</string>
	<key>ProgramArguments</key><array><string>` + escaped.String() + `</string><string>daemon</string><string>run</string></array>
	<key>RunAtLoad</key><true/>
	<key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
</dict>
</plist>
`
}

// serviceReport is what the commands about the service print as JSON.
type serviceReport struct {
	File   string `json:"file"`
	Action string `json:"action"` // installed, removed, unchanged
	DryRun bool   `json:"dryRun,omitempty"`
}

// ours reports whether there is a file of the service. One that somebody else
// wrote is an error.
func (s service) ours() (text string, there bool, err error) {
	data, err := os.ReadFile(s.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err == nil && !strings.Contains(string(data), serviceMark):
		err = &patchbay.Error{Kind: patchbay.KindDenied, Message: fmt.Sprintf("%s is not Patchbay's.", s.file), Hint: "Rename it, or remove it, first."}
	}
	return string(data), true, err
}

func (a *app) installService(ctx context.Context, dryRun bool) error {
	s, err := a.service()
	if err != nil {
		return err
	}
	was, _, err := s.ours()
	if err != nil {
		return err
	}
	if dryRun {
		return a.print(serviceReport{s.file, "installed", true}, func(p *printer) { p.line("Would write %s:\n\n%s", p.path(s.file), s.text) })
	}
	r := serviceReport{File: s.file, Action: "unchanged"}
	if was != s.text {
		r.Action = "installed"
		if err := os.MkdirAll(filepath.Dir(s.file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(s.file, []byte(s.text), 0o644); err != nil {
			return err
		}
	}
	if err := a.runAll(ctx, s.start); err != nil && r.Action != "unchanged" {
		return err
	}
	return a.print(r, func(p *printer) {
		p.line("The daemon is a service now: %s. It runs from your login on, whether or not an agent does.", p.path(s.file))
	})
}

func (a *app) uninstallService(ctx context.Context, dryRun bool) error {
	s, err := a.service()
	if err != nil {
		return err
	}
	_, there, err := s.ours()
	switch {
	case err != nil:
		return err
	case !there:
		return a.print(serviceReport{File: s.file, Action: "unchanged"}, func(p *printer) { p.line("There is no service.") })
	case dryRun:
		return a.print(serviceReport{s.file, "removed", true}, func(p *printer) { p.line("Would remove %s.", p.path(s.file)) })
	}
	failed := a.runAll(ctx, s.end) // the file goes in any case, so that it does not come back
	if err := os.Remove(s.file); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return a.print(serviceReport{File: s.file, Action: "removed"}, func(p *printer) { p.line("The daemon is no service any more: %s is removed.", p.path(s.file)) })
}

// runAll runs commands of the service manager, up to the first that fails.
func (a *app) runAll(ctx context.Context, commands [][]string) error {
	for _, argv := range commands {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = a.env.Environ
		if out, err := cmd.CombinedOutput(); err != nil {
			reason := strings.TrimSpace(string(out))
			if reason == "" {
				reason = err.Error()
			}
			return &patchbay.Error{Message: fmt.Sprintf("`%s` failed: %s", strings.Join(argv, " "), reason), Hint: "The file of the service is written or removed; the service manager has to be told of it."}
		}
	}
	return nil
}
