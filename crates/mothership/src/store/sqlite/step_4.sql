-- Version 4: sessions of the console, by the hash of their secret, and the audit chain of each account.
CREATE TABLE console_session (
  hash BLOB PRIMARY KEY, id BLOB NOT NULL UNIQUE, account_id BLOB NOT NULL, key_id BLOB NOT NULL, created_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX console_session_account ON console_session (account_id, id);
-- An event is written by the transaction that it is about, and gets its place in the chain afterwards: no writer waits for another.
CREATE TABLE audit_event (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, object TEXT NOT NULL,
  detail TEXT NOT NULL, seq INTEGER, prev TEXT, hash TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX audit_chain ON audit_event (account_id, seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_loose ON audit_event (account_id, id) WHERE seq IS NULL;
-- The end of each chain. The beginning is what retention has removed.
CREATE TABLE audit_head (
  account_id BLOB PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL, first_seq INTEGER NOT NULL, first_prev TEXT NOT NULL
);
