set -e
export CARGO_HOME="$PWD/cargo-home" CARGO_NET_RETRY=0 PATH="$TOOLS/toolchain/bin:$PATH"
mkdir -p app/src app/.cargo
cd app
printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\ndemo = "1"\n' > Cargo.toml
echo 'fn main() {}' > src/main.rs
printf '[source.crates-io]\nreplace-with = "world"\n[source.world]\nregistry = "sparse+https://%s/cargo/"\n' "$HOST" > .cargo/config.toml
cargo fetch -q
cat "$CARGO_HOME"/registry/src/*/demo-1.0.0/src/lib.rs
cargo tree -q --offline --depth 1 --format '{p}' | tail -n 1
