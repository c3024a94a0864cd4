-- Version 6: approvals of connections of directives that run. subject is exactly what is asked for, approval the state machine, live
-- that it is not over, target the destination with the program.
CREATE TABLE connection_approval (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, directive_id BLOB NOT NULL, fence INTEGER NOT NULL, target TEXT NOT NULL,
  live INTEGER NOT NULL, asked_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, reasons TEXT NOT NULL, subject TEXT NOT NULL,
  approval TEXT NOT NULL, comment TEXT
) WITHOUT ROWID;
CREATE INDEX connection_approval_directive ON connection_approval (directive_id, fence, target);
CREATE INDEX connection_approval_account ON connection_approval (account_id, id);
CREATE INDEX connection_approval_live ON connection_approval (account_id, expires_at) WHERE live;
CREATE INDEX connection_approval_due ON connection_approval (expires_at);
-- The key that created the directive: it answers nothing that the directive asks.
ALTER TABLE directive ADD COLUMN key_id BLOB;
