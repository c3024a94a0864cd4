# Runs words with a `/etc/nexus/config.toml` of its own, in a mount namespace that its caller made.
# Arguments: the file, an empty folder, the words.
set -euo pipefail
config=$1 etc=$2
shift 2
mount -t tmpfs -o mode=755 etc "$etc"
# An ordinary user cannot read a few files; no client needs them.
cp -a /etc/. "$etc/" 2> /dev/null || true
rm -rf "$etc/nexus"
mkdir "$etc/nexus"
cp "$config" "$etc/nexus/config.toml"
chmod 644 "$etc/nexus/config.toml"
mount --bind "$etc" /etc
exec "$@"
