# Functions by which a row of the project table is fetched, outside, from the registries of this machine's clients.
# $PWD becomes the workspace, $HOME_OF_ROW the home of whoever runs it, $SHARED is kept between rows.
set -e

client() {
    test -d "$SHARED/client" || /usr/bin/python3 -m venv "$SHARED/client"
}

# NAME==VERSION: unpacks a source distribution as the directory `project`.
pip_source() {
    client
    "$SHARED/client/bin/pip" download -q --no-input --disable-pip-version-check --no-deps --no-binary :all: --no-build-isolation \
        -d sdist "$1" 2> log || "$SHARED/client/bin/pip" download -q --no-input --disable-pip-version-check --no-deps \
        --no-binary :all: -d sdist "$1"
    mkdir project
    tar -x --no-same-owner --strip-components=1 -C project -f sdist/*.tar.gz
    rm -r sdist
}

# What the suites of Python import, in the directory `tools`.
pip_tools() {
    client
    test -d "$SHARED/tools" || "$SHARED/client/bin/pip" install -q --no-input --disable-pip-version-check \
        --target "$SHARED/tools" pytest==8.3.5 pytest-xdist==3.6.1 hypothesis==6.131.0 freezegun==1.5.1 pyyaml==6.0.2
    cp -r "$SHARED/tools" tools
}

# NAME@VERSION: unpacks a package as the directory `project`.
npm_source() {
    npm pack --silent "$1" > name
    tar -x --no-same-owner -f "$(cat name)"
    mv package project
    rm "$(cat name)" name
}

npm_tools() {
    test -f package.json || echo '{"private":true}' > package.json
    npm install --silent --no-audit --no-fund --ignore-scripts --no-save "$@"
}

# NAME VERSION: a crate as the directory `project`, and what its tests need in the home.
crate() {
    export CARGO_HOME="$HOME_OF_ROW/.cargo"
    mkdir -p client/src
    : > client/src/lib.rs
    printf '[package]\nname = "client"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n' "$1" "$2" > client/Cargo.toml
    cargo fetch -q --manifest-path client/Cargo.toml
    cp -r "$CARGO_HOME"/registry/src/*/"$1-$2" project
    rm -r client
    cargo fetch -q --manifest-path project/Cargo.toml
}

# The package lists of the configured suites, with their sources, in a root of apt of its own.
apt_root() {
    test -f "$SHARED/apt/done" && return
    mkdir -p "$SHARED/apt/parts" "$SHARED/apt/lists/partial" "$SHARED/apt/archives/partial"
    for file in /etc/apt/sources.list.d/*.sources; do
        test -f "$file" && sed 's/^Types:.*/Types: deb deb-src/' "$file" > "$SHARED/apt/parts/$(basename "$file")"
    done
    : > "$SHARED/apt/one.list"
    if test -f /etc/apt/sources.list; then
        sed -n 's/^deb\(-src\)\? /&/p; s/^deb /deb-src /p' /etc/apt/sources.list > "$SHARED/apt/one.list"
    fi
    in_apt_root apt-get update -q > "$SHARED/apt/log"
    : > "$SHARED/apt/done"
}

in_apt_root() {
    program=$1
    shift
    "$program" -o Dir::Etc::sourcelist="$SHARED/apt/one.list" -o Dir::Etc::sourceparts="$SHARED/apt/parts" \
        -o Dir::State::lists="$SHARED/apt/lists" -o Dir::Cache="$SHARED/apt" -o Acquire::Languages=none -o APT::Sandbox::User= "$@"
}

# NAME: Debian's source package as the directory `project`.
debian_source() {
    apt_root
    mkdir source
    (cd source && in_apt_root apt-get -q source "$1" > ../log 2>&1) || { cat log >&2; exit 100; }
    mv source/*/ project
    rm -r source log
}

# NAME…: the files of Debian's packages in the directory `debian`.
debian_files() {
    apt_root
    mkdir -p debs debian
    (cd debs && in_apt_root apt-get -q download "$@" > ../log 2>&1) || { cat log >&2; exit 100; }
    for file in debs/*.deb; do dpkg-deb -x "$file" debian; done
    rm -r debs log
}
