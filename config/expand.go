package config

// Dialect names a product's placeholder syntax and what an unset variable means
// in it.
type Dialect string

const (
	DialectPatchbay Dialect = "patchbay" // ${VAR} ${VAR:-default} ${env:VAR} ${workspaceRoot}; unset is an error; values resolve
	DialectOMP      Dialect = "omp"      // oh-my-pi, pi, xcsh: ${X} ${X:-default}; unset stays; values resolve
	DialectClaude   Dialect = "claude"   // ${VAR} ${VAR:-default}; unset stays, with a warning
	DialectElectric Dialect = "electric" // ${VAR} ${env:VAR} ${workspaceRoot}; unset is an error
	DialectCursor   Dialect = "cursor"   // ${env:X} ${workspaceFolder} ${workspaceFolderBasename} ${userHome} ${pathSeparator} ${/}
	DialectVSCode   Dialect = "vscode"   // ${input:id} ${env:X} ${workspaceFolder} ${userHome}
	DialectEnvOnly  Dialect = "env"      // ${env:X} ${workspaceFolder}: Windsurf, Roo Code
	DialectGemini   Dialect = "gemini"   // $X ${X}, %X% on Windows; unset is empty: Gemini, Qwen
	DialectOpencode Dialect = "opencode" // {env:X} {file:path}; unset is empty
	DialectShell    Dialect = "shell"    // $X ${X} and $(command), which never runs: Crush
	DialectDollar   Dialect = "dollar"   // $X ${X}; unset stays: Amp, Goose, Kiro
	DialectSecrets  Dialect = "secrets"  // ${{ secrets.X }}: Continue
	DialectMcporter Dialect = "mcporter" // $env:X ${X} ${X:-default}
	DialectNone     Dialect = "none"     // values are literal
)
