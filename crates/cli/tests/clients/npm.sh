# `npm ci` from a lock file, then `npm install` of what it resolves itself.
set -e
export npm_config_registry="https://$HOST/npm/" npm_config_fetch_retries=0 npm_config_audit=false npm_config_fund=false
export npm_config_update_notifier=false npm_config_cache="$PWD/cache"
mkdir app
cd app
echo '{"name":"app","version":"1.0.0","dependencies":{"demo":"^1.0.0"}}' > package.json
sed "s|HOST_OF_REQUEST|$HOST|" "$TOOLS/npm-lock" > package-lock.json
npm ci --loglevel=error > ../log
node -p 'require("demo")'
rm -rf node_modules package-lock.json "$npm_config_cache"
npm install --loglevel=error > ../log
node -p 'require("demo") + require("./package-lock.json").packages["node_modules/demo"].integrity'
