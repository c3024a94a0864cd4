-- Version 7: policy documents of accounts, a row for each generation; the latest counts, and one without a document is a removal.
CREATE TABLE account_policy (
  account_id BLOB NOT NULL, generation INTEGER NOT NULL, hash TEXT, document TEXT, key_id BLOB NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (account_id, generation)
) WITHOUT ROWID;
-- A claim found that the policy in force forbids the directive.
ALTER TABLE work ADD COLUMN denied INTEGER NOT NULL DEFAULT 0;
