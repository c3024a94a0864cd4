# One ordinary project in which every tool has its place.
step 0 git init -b main
line 0 'printf "*.o\n*.a\napp\n__pycache__/\nnotes.db*\n" > .gitignore'
step 0 make
step 0 make test
step 0 /usr/bin/python3 -m unittest -v
step 0 node --test shop.test.js
step 0 sqlite3 notes.db 'pragma journal_mode=wal; create table notes (text); insert into notes values ("x"); pragma integrity_check'
line 0 'rm -r made sales.db'
step 0 git add -A
step 0 git commit -m 'Everything'
step 0 git status
step 0 git ls-files --stage
line 0 'find . -name "*.c" | sort | xargs wc -l'
line 0 'tar c --sort=name *.c *.h | tar t'
