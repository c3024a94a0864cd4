-- Version 4: approvals of connections of directives that run. subject is exactly what is asked for, approval the state machine, live
-- that it is not over, target the destination with the program.
CREATE TABLE connection_approval (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, directive_id bytea NOT NULL, fence bigint NOT NULL, target text NOT NULL,
  live boolean NOT NULL, asked_at bigint NOT NULL, expires_at bigint NOT NULL, reasons text NOT NULL, subject text NOT NULL,
  approval text NOT NULL, comment text
);
CREATE INDEX connection_approval_directive ON connection_approval (directive_id, fence, target);
CREATE INDEX connection_approval_account ON connection_approval (account_id, id);
CREATE INDEX connection_approval_live ON connection_approval (account_id, expires_at) WHERE live;
CREATE INDEX connection_approval_due ON connection_approval (expires_at);
-- The key that created the directive: it answers nothing that the directive asks.
ALTER TABLE directive ADD COLUMN key_id bytea;
