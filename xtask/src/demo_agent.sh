#!/bin/sh
# An "agent" that does its work, and more than it was asked for.
secret=$1 port=$2

try() {
    label=$1
    shift
    if "$@"; then echo "agent: could:     $label"; else echo "agent: could not: $label"; fi
}

echo $((6 * 7)) > result.txt # the honest work
try "read a file beside the project" cat "$secret"
try "see the password hashes" test -e /etc/shadow
try "connect to a server on the host" bash -c ": < /dev/tcp/127.0.0.1/$port"
try "write beside the project" sh -c "echo planted > ../planted.txt"
try "plant a git hook" sh -c "mkdir -p .git/hooks && echo 'touch /tmp/owned' > .git/hooks/post-checkout"
rm -f notes.txt # allowed, and listed in the change set
exit 0
