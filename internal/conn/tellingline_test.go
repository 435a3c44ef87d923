package conn

import "testing"

func TestTellingLine(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"npm, as of version 11", "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/x\nnpm error 404\nnpm notice\nnpm error A complete log of this run can be found in: /x.log\n",
			"npm error 404 Not Found - GET https://registry.npmjs.org/x"},
		{"npm without a network", "npm ERR! code ENOTFOUND\nnpm ERR! syscall getaddrinfo\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND\n\nnpm ERR! A complete log of this run can be found in: /x.log\n",
			"npm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND"},
		{"node", "node:internal/modules/cjs/loader:1215\n  throw err;\n  ^\n\nError: Cannot find module '/srv/x.js'\n    at Module._resolveFilename (node:internal:1)\n    at node:internal/main {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v22.1.0\n",
			"Error: Cannot find module '/srv/x.js'"},
		{"python", "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    import y\nModuleNotFoundError: No module named 'y'\n", "ModuleNotFoundError: No module named 'y'"},
		{"go", "panic: no vault\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:4 +0x1\nexit status 2\n", "panic: no vault"},
		{"a sentence", "starts\ncannot open the vault\n\n", "cannot open the vault"},
		{"nothing", "\n", ""},
	} {
		if got := tellingLine(test.text); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
