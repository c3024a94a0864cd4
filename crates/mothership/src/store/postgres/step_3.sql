-- Version 3: the key that ends when a renewed certificate is used.
ALTER TABLE certificate ADD COLUMN replaces bytea;
-- Approvals of directives. subject is exactly what is asked for, approval the state machine, live that it is not over.
CREATE TABLE approval (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, directive_id bytea NOT NULL UNIQUE, live boolean NOT NULL, asked_at bigint NOT NULL,
  expires_at bigint NOT NULL, reasons text NOT NULL, subject text NOT NULL, approval text NOT NULL, comment text
);
CREATE INDEX approval_account ON approval (account_id, id);
CREATE INDEX approval_live ON approval (account_id, expires_at) WHERE live;
CREATE INDEX approval_due ON approval (expires_at);
-- A directive that starts only with an approval. phase -1: it waits for one.
ALTER TABLE work ADD COLUMN asks boolean NOT NULL DEFAULT FALSE;
CREATE INDEX work_awaits ON work (directive_id) WHERE phase = -1;
