-- Version 1. The tables and columns of SQLite, in version 3; ids are 16 bytes, times are milliseconds since 1970 in UTC, JSON is text.
CREATE TABLE schema_version (version bigint NOT NULL, min_reader bigint NOT NULL);
INSERT INTO schema_version VALUES (1, 1);

-- One row. The epoch is raised when a backup is restored or a standby is promoted, so that no fence is issued twice. blobs_id
-- names the directory of kept files.
CREATE TABLE store (
  id bigint PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL,
  token_key bytea NOT NULL, ca_cert text NOT NULL, ca_key text NOT NULL, timeline text NOT NULL, blobs_id bytea
);

CREATE TABLE account (id bytea PRIMARY KEY, name text NOT NULL, created_at bigint NOT NULL);
CREATE TABLE api_key (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, hash bytea NOT NULL UNIQUE, role text NOT NULL, name text, created_at bigint NOT NULL
);
CREATE INDEX api_key_account ON api_key (account_id, id);

CREATE TABLE enroll_token (
  hash bytea PRIMARY KEY, account_id bytea NOT NULL, kind text, labels text NOT NULL, expires_at bigint NOT NULL,
  used_at bigint, territory_id bytea, csr_key bytea
);
CREATE TABLE enroll_rate (source text NOT NULL, hour bigint NOT NULL, tries bigint NOT NULL, PRIMARY KEY (source, hour));

CREATE TABLE territory (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, state bigint NOT NULL, kind text NOT NULL, name text, display_name text,
  platform text, created_at bigint NOT NULL
);
CREATE INDEX territory_account ON territory (account_id, id);
CREATE TABLE presence (
  territory_id bytea PRIMARY KEY, last_seen bigint, labels text NOT NULL, capacity text NOT NULL, guarantees text NOT NULL,
  profiles text NOT NULL, nexus_version text, protocol_version text, running bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE certificate (
  fingerprint bytea PRIMARY KEY, spki bytea NOT NULL, territory_id bytea NOT NULL, account_id bytea NOT NULL,
  revoked boolean NOT NULL DEFAULT FALSE
);
CREATE INDEX certificate_key ON certificate (spki);
CREATE INDEX certificate_territory ON certificate (territory_id);
CREATE TABLE trail (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account_id bytea NOT NULL, territory_id bytea NOT NULL, at bigint NOT NULL,
  event text NOT NULL, cause text NOT NULL
);

CREATE TABLE facility (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, kind text NOT NULL, name text, repo_url text, pin bytea,
  epoch bigint NOT NULL DEFAULT 0, created_at bigint NOT NULL
);
CREATE INDEX facility_account ON facility (account_id, id);
CREATE TABLE grp (account_id bytea NOT NULL, name text NOT NULL, next_ms bigint NOT NULL, PRIMARY KEY (account_id, name));
CREATE TABLE class (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account_id bytea NOT NULL, requirements text NOT NULL,
  UNIQUE (account_id, requirements)
);

CREATE TABLE directive (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, facility_id bytea NOT NULL, state text NOT NULL, reason text, exit_code bigint,
  attempt bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 0, payload_hash text,
  created_at bigint NOT NULL, started_at bigint, ended_at bigint, territory_id bytea, spec text NOT NULL,
  approval_reasons text NOT NULL, result text, out text, err text, kept bigint NOT NULL DEFAULT 2
);
CREATE INDEX directive_facility ON directive (facility_id, id);
CREATE INDEX directive_account ON directive (account_id, id);
CREATE INDEX directive_rows ON directive (ended_at) WHERE ended_at IS NOT NULL AND kept = 2;
CREATE INDEX directive_kept ON directive (ended_at) WHERE ended_at IS NOT NULL AND kept >= 1;

-- Written at each step of each directive: room for new versions of a row in its page, and vacuum before the heads of lanes are
-- full of old ones.
CREATE TABLE work (
  directive_id bytea PRIMARY KEY, account_id bytea NOT NULL, facility_id bytea NOT NULL, shared boolean NOT NULL DEFAULT FALSE,
  pin bytea NOT NULL, class_id bigint NOT NULL, rank bigint NOT NULL, starts bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 1, phase bigint NOT NULL, attempt bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0,
  holder bytea, poll_id text, confirms boolean NOT NULL DEFAULT FALSE, visible_at bigint, lease_until bigint, cancel_at bigint,
  queue_until bigint, started_at bigint, started text, deadline bigint, timeout_ms bigint NOT NULL, requeue boolean NOT NULL,
  log_limit bigint NOT NULL, out text NOT NULL, err text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_ready ON work (account_id, class_id, pin, rank, directive_id) WHERE phase = 1;
CREATE INDEX work_wait ON work (facility_id, rank, directive_id) WHERE phase = 0;
CREATE INDEX work_held ON work (holder) WHERE phase >= 2;
CREATE INDEX work_queue ON work (queue_until) WHERE queue_until IS NOT NULL;
CREATE INDEX work_facility ON work (facility_id, phase);
CREATE UNIQUE INDEX work_exclusive ON work (facility_id) WHERE phase >= 1 AND NOT shared;

CREATE TABLE log_chunk (
  directive_id bytea NOT NULL, attempt bigint NOT NULL, stream text NOT NULL, seq bigint NOT NULL, hash bytea NOT NULL,
  truncated boolean NOT NULL, created_at bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (directive_id, attempt, stream, seq)
);
CREATE TABLE directive_event (
  directive_id bytea NOT NULL, attempt bigint NOT NULL, seq bigint NOT NULL, events text NOT NULL,
  PRIMARY KEY (directive_id, attempt, seq)
);
CREATE TABLE report (
  directive_id bytea NOT NULL, attempt bigint NOT NULL, diff bytea, receipt text, PRIMARY KEY (directive_id, attempt)
);
CREATE TABLE idempotency (
  account_id bytea NOT NULL, user_id bytea NOT NULL, route text NOT NULL, key text NOT NULL, body_hash text NOT NULL,
  directive_id bytea NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (account_id, user_id, route, key)
);
CREATE TABLE artifact (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, directive_id bytea NOT NULL, attempt bigint NOT NULL, name text NOT NULL,
  size bigint NOT NULL, hash text NOT NULL, media_type text, received bigint NOT NULL DEFAULT 0,
  complete boolean NOT NULL DEFAULT FALSE, created_at bigint NOT NULL, UNIQUE (directive_id, attempt, name)
);
CREATE TABLE log_blob (
  id bytea PRIMARY KEY, account_id bytea NOT NULL, directive_id bytea NOT NULL, attempt bigint NOT NULL, stream text NOT NULL,
  chunks text NOT NULL, created_at bigint NOT NULL, UNIQUE (directive_id, attempt, stream)
);
