set -e
install -m 600 "$TOOLS/ssh/key" key
export GIT_SSH_COMMAND="ssh -F none -i $PWD/key -o UserKnownHostsFile=$TOOLS/ssh/known_hosts -o StrictHostKeyChecking=yes -o BatchMode=yes"
git clone -q "ssh://server@$HOST/$SRV/git/project.git" copy
cd copy
git fsck
sha256sum blob
echo more > more
git add more
git commit -q -m More
git push -q origin "HEAD:refs/heads/$RUN"
git ls-remote origin "refs/heads/$RUN" | cut -f1
git push -q origin ":$RUN"
