step 0 cargo --version --verbose
step 0 cargo build --offline
step 0 cargo test --offline -- --test-threads=1
step 0 target/debug/shop
step 0 cargo metadata --offline --format-version 1
line 0 'echo "pub fn wrong() -> u32 { \"x\" }" >> src/lib.rs'
step 101 cargo build --offline
line 0 'sed -i "\$d" src/lib.rs'
step 0 cargo build --offline
step 0 cargo test --offline --no-run
step 0 note_dates
