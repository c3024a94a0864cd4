set -e
git clone -q "https://$HOST/git/project.git" copy
cd copy
git fsck
sha256sum blob
echo more > more
git add more
git commit -q -m More
git push -q origin "HEAD:refs/heads/$RUN"
git ls-remote origin "refs/heads/$RUN" | cut -f1
git fetch -q origin "$RUN"
git log --format='%H %s' FETCH_HEAD
git push -q origin ":$RUN"
