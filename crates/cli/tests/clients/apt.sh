# Private state and cache, over http and https, and a package.
set -e
mkdir -p etc/apt.conf.d etc/preferences.d state/lists/partial cache/archives/partial
: > state/status
cat > apt.conf <<EOF
Dir::Etc "$PWD/etc";
Dir::State "$PWD/state";
Dir::State::status "$PWD/state/status";
Dir::Cache "$PWD/cache";
Acquire::Retries "0";
Acquire::Languages "none";
APT::Sandbox::User "";
EOF
export APT_CONFIG="$PWD/apt.conf"
for scheme in http https; do
    echo "deb [trusted=yes] $scheme://$HOST/apt ./" > etc/sources.list
    # Without this apt-get says 0 though it reached nothing.
    apt-get update -q -o APT::Update::Error-Mode=any > log || { cat log >&2; exit 100; }
    apt-cache show demo | grep -E '^(Package|Version|SHA256)'
    apt-get download -q demo > log
    dpkg-deb --fsys-tarfile demo_1.0_all.deb | tar x -O ./usr/share/demo/answer
    rm -r demo_1.0_all.deb state/lists
done
