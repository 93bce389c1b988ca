# SPDX-License-Identifier: Apache-2.0
# A package made, packed, installed from the tarball without a network, its script and its command run.
export npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_offline=true
mkdir lib app && cd lib
printf '#!/usr/bin/env node\nconsole.log(require("./index").twice(Number(process.argv[2])));\n' >cli.js && chmod +x cli.js
echo 'exports.twice = (n) => 2 * n;' >index.js
echo '{"name":"twice","version":"1.2.3","main":"index.js","bin":{"twice":"cli.js"},"scripts":{"postinstall":"echo hooked >hooked"}}' >package.json
npm pack --silent && tar -tzf twice-1.2.3.tgz | sort && cd ../app
npm init -y >/dev/null && npm pkg set scripts.go='twice 21 && node -p "require(\"twice\").twice(1)"'
npm install --silent ../lib/twice-1.2.3.tgz && cat node_modules/twice/hooked && npm run --silent go && npx --no-install twice 4
npm ls --depth 0 2>&1 | sed 1d; npm install --silent left-pad-that-is-not-there 2>/dev/null || echo "refused with $?"
npm ci --silent && npm run --silent go
