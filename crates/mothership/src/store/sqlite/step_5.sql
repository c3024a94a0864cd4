-- Version 5: the key that ends when a renewed certificate is used.
ALTER TABLE certificate ADD COLUMN replaces BLOB;
-- Approvals of directives. subject is exactly what is asked for, approval the state machine, live that it is not over.
CREATE TABLE approval (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, directive_id BLOB NOT NULL UNIQUE, live INTEGER NOT NULL, asked_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, reasons TEXT NOT NULL, subject TEXT NOT NULL, approval TEXT NOT NULL, comment TEXT
) WITHOUT ROWID;
CREATE INDEX approval_account ON approval (account_id, id);
CREATE INDEX approval_live ON approval (account_id, expires_at) WHERE live;
CREATE INDEX approval_due ON approval (expires_at);
-- A directive that starts only with an approval. phase -1: it waits for one.
ALTER TABLE work ADD COLUMN asks INTEGER NOT NULL DEFAULT 0;
CREATE INDEX work_awaits ON work (directive_id) WHERE phase = -1;
