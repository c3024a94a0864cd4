set -e
mkdir -p state/lists/partial cache/archives/partial
: > state/status
apt-get update -q -o Dir::State="$PWD/state" -o Dir::State::status="$PWD/state/status" -o Dir::Cache="$PWD/cache" \
    -o Acquire::Languages=none -o APT::Update::Error-Mode=any > log || { cat log >&2; exit 100; }
ls state/lists | grep -q Packages && echo updated
