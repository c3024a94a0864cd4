set -e
export CARGO_HOME="${CARGO_HOME:-$PWD/cargo-home}"
mkdir -p app/src
cd app
printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\nitoa = "=1.0.11"\n' > Cargo.toml
echo 'fn main() {}' > src/main.rs
cargo fetch -q
cargo tree -q --offline --depth 1 --format '{p}' | tail -n 1
