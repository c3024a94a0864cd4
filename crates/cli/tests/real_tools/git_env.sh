# With fixed names and dates the same work gives the same hashes.
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com GIT_AUTHOR_DATE='2026-01-02T03:04:05Z'
export GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'
