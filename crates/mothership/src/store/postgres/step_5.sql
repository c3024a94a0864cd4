-- Version 5: policy documents of accounts, a row for each generation; the latest counts, and one without a document is a removal.
CREATE TABLE account_policy (
  account_id bytea NOT NULL, generation bigint NOT NULL, hash text, document text, key_id bytea NOT NULL, at bigint NOT NULL,
  PRIMARY KEY (account_id, generation)
);
-- A claim found that the policy in force forbids the directive.
ALTER TABLE work ADD COLUMN denied boolean NOT NULL DEFAULT FALSE;
