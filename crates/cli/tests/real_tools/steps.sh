# Put before each script: what a step prints and returns is the same inside and outside, or the test fails.
bad=0

# step CODE COMMAND…: runs it under a heading on both streams, and notes a code other than the expected one.
step() {
    wanted=$1
    shift
    echo "\$ $*"
    echo "\$ $*" >&2
    "$@"
    code=$?
    echo "[exit $code]"
    if [ "$code" != "$wanted" ]; then
        echo "UNEXPECTED: not $wanted"
        bad=1
    fi
}

# line CODE STRING: the same for a line of shell.
line() {
    step "$1" sh -c "$2"
}

# Dates of the files and folders that a run leaves; the next run looks whether the commit has kept them, to the
# nanosecond: what is newer than it was is built again.
dates() {
    find . -mindepth 1 ! -name dates -printf '%P %T@\n' | sort
}

note_dates() {
    dates > dates
}

same_dates() {
    dates | diff dates - && rm dates
}

