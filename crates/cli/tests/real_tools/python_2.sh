# A new run, after what the first one made has been committed: the compiled files still match their sources.
step 0 same_dates
rm -r made sales.db
line 0 'venv/bin/python -v -c "import shop" 2>&1 | grep -c "matches .*/shop.py"'
step 0 venv/bin/python -m unittest
