# An existing repository: a.txt, src/one.c, src/two.c, docs/x.md, bin/tool (executable), link -> a.txt, one commit.
step 0 git status --short --branch
step 0 git log --stat
step 0 git checkout -b feature
line 0 'echo more >> a.txt; echo new > fresh; chmod 755 src/two.c; rm docs/x.md'
step 0 git status
step 0 git diff
step 1 git diff --quiet
step 0 git add -A
step 0 git diff --cached --stat
step 0 git commit -m 'Work on the feature'
step 0 git mv a.txt b.txt
step 0 git mv src/one.c src/uno.c
step 0 git mv b.txt src/
step 0 git status --short
step 0 git commit -m 'Rename files'
step 0 git log --follow --oneline src/b.txt
step 0 git checkout main
line 0 'echo main >> src/two.c'
step 0 git -c user.name=Bob -c user.email=bob@example.com commit -am 'Work on main'
step 0 git merge feature -m 'Merge the feature'
step 0 git checkout -b clash HEAD~2
line 0 'echo other >> src/two.c'
step 0 git commit -am 'Clash'
step 1 git merge main
step 0 git status --short
step 0 git merge --abort
step 0 git checkout main
step 1 git rebase clash
step 0 git rebase --abort
step 0 git checkout -b picked HEAD~2
step 0 git cherry-pick feature~1
step 0 git checkout main
step 0 git branch -d feature
step 1 git branch -d clash
step 0 git branch -a -vv
step 0 git tag v1
step 0 git tag -a v2 -m 'Second'
step 0 git describe
line 0 'echo unfinished >> src/two.c; echo loose > loose'
step 0 git stash -u
step 0 git stash list
step 0 git status --short
step 0 git stash pop
step 0 git rm -q bin/tool
step 0 git reset --hard
step 0 git clean -fd
step 0 ls -l --time-style=+ bin src link
step 0 git -c pack.threads=1 gc --quiet --prune=now
step 0 git count-objects
step 0 git fsck --full --strict
step 0 git -c pack.threads=1 clone --quiet . /tmp/copy
step 0 git -C /tmp/copy log --oneline
step 0 git -C /tmp/copy status --short --branch
step 0 git log --graph --oneline --all
step 0 git grep -n main
step 0 git blame -s src/two.c
step 0 git archive --output all.tar HEAD
step 0 tar tf all.tar
step 1 git checkout no-such-branch
line 128 "git -C /tmp status 2>/dev/null"
