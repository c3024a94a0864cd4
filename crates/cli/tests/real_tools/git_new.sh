# A folder that is no repository yet: readme, lib/a.c.
# Which folders git has tried it says in other words, as the workspace is a mount inside.
line 128 'git log 2>/dev/null'
step 0 git init -b main
step 0 git remote add origin https://git.example.com/a.git
step 0 git config core.abbrev 10
step 0 git config --list --local
step 0 git add .
step 0 git commit -m First
step 0 git branch next
step 0 git checkout next
line 0 'mkdir deep; echo x > deep/x; git add deep'
step 0 git mv deep moved
step 0 git commit -m 'A folder made and renamed in this run'
step 0 git checkout main
step 0 git merge next
step 0 git init --bare /tmp/bare.git
step 0 git push /tmp/bare.git main
step 0 git -c pack.threads=1 gc --quiet
step 0 git fsck
step 0 git log --format='%h %an %ae %ad %s'
step 0 git status
