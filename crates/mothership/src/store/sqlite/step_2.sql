-- Version 2: kept files of directives. Their bytes lie in the directory of blobs, in files named by the id.
CREATE TABLE artifact (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, directive_id BLOB NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL,
  size INTEGER NOT NULL, hash TEXT NOT NULL, media_type TEXT, received INTEGER NOT NULL DEFAULT 0, complete INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL, UNIQUE (directive_id, attempt, name)
);
-- What is left of the output of a directive: 2 rows, 1 files, 0 nothing. The indexes hold what the tasks in the background look for.
ALTER TABLE directive ADD COLUMN kept INTEGER NOT NULL DEFAULT 2;
CREATE INDEX directive_rows ON directive (ended_at) WHERE ended_at IS NOT NULL AND kept = 2;
CREATE INDEX directive_kept ON directive (ended_at) WHERE ended_at IS NOT NULL AND kept >= 1;
-- Output of one stream of a directive that is over, in one file; chunks is the index: number, place, length and hash of each piece.
CREATE TABLE log_blob (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, directive_id BLOB NOT NULL, attempt INTEGER NOT NULL, stream TEXT NOT NULL,
  chunks TEXT NOT NULL, created_at INTEGER NOT NULL, UNIQUE (directive_id, attempt, stream)
);
