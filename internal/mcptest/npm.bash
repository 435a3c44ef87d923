# For the stages that need packages from npm: `source` it.

# packages DIR prints where the packages are that DIR/package-lock.json has. It
# installs them once, outside of the repository. No script of theirs is run.
packages() {
	local try fresh place=${XDG_CACHE_HOME:-$HOME/.cache}/patchbay-${1##*/}/$(cksum <"$1/package-lock.json" | tr -s ' ' -)
	if [[ ! -d $place ]]; then
		mkdir -p "${place%/*}"
		fresh=$(mktemp -d "$place.XXXXXX")
		cp "$1"/package{,-lock}.json "$fresh"
		for try in 1 2 3; do
			if (cd "$fresh" && timeout 400 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2); then
				[[ -d $place ]] || mv "$fresh" "$place"
				break
			fi
			echo "npm ci did not succeed (try $try of 3)" >&2
			sleep $((3 * try))
		done
		rm -rf "$fresh"
	fi
	[[ -d $place ]] && echo "$place/node_modules"
}

# recent_node MODULES puts the Node that comes with the packages first in PATH if
# the system's is too old for them.
recent_node() {
	local recent='const [a, b] = process.versions.node.split("."); process.exit(a > 22 || a == 22 && b >= 19 ? 0 : 1)'
	node -e "$recent" 2>/dev/null && return
	export PATH="$(echo "$1"/node-*/bin):$PATH"
	node -e "$recent" || { echo 'Node 22.19 or newer is needed' >&2; return 1; }
}
