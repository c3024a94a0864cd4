-- Version 2: sessions of the console, by the hash of their secret, and the audit chain of each account.
CREATE TABLE console_session (
  hash bytea PRIMARY KEY, id bytea NOT NULL UNIQUE, account_id bytea NOT NULL, key_id bytea NOT NULL, created_at bigint NOT NULL,
  seen_at bigint NOT NULL
);
CREATE INDEX console_session_account ON console_session (account_id, id);
-- An event is written by the transaction that it is about, and gets its place in the chain afterwards: no writer waits for another.
CREATE TABLE audit_event (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, at bigint NOT NULL, actor text NOT NULL, action text NOT NULL, object text NOT NULL,
  detail text NOT NULL, seq bigint, prev text, hash text
);
CREATE UNIQUE INDEX audit_chain ON audit_event (account_id, seq) WHERE seq IS NOT NULL;
CREATE INDEX audit_loose ON audit_event (account_id, id) WHERE seq IS NULL;
-- The end of each chain. The beginning is what retention has removed.
CREATE TABLE audit_head (
  account_id bytea PRIMARY KEY, seq bigint NOT NULL, hash text NOT NULL, first_seq bigint NOT NULL, first_prev text NOT NULL
);
