# A new run, after what the first one made has been committed: nothing is old.
step 0 same_dates
step 0 cargo build --offline
step 0 cargo test --offline --no-run
