-- Version 1. Ids are 16 bytes, times are milliseconds since 1970 in UTC, JSON is text.
CREATE TABLE schema_version (version INTEGER NOT NULL, min_reader INTEGER NOT NULL);
INSERT INTO schema_version VALUES (1, 1);

-- One row. The epoch is raised when a backup is restored, so that no fence is issued twice.
CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL,
  token_key BLOB NOT NULL, ca_cert TEXT NOT NULL, ca_key TEXT NOT NULL
);

CREATE TABLE account (id BLOB PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL);
CREATE TABLE api_key (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, hash BLOB NOT NULL UNIQUE, role TEXT NOT NULL, name TEXT, created_at INTEGER NOT NULL
);
CREATE INDEX api_key_account ON api_key (account_id, id);

CREATE TABLE enroll_token (
  hash BLOB PRIMARY KEY, account_id BLOB NOT NULL, kind TEXT, labels TEXT NOT NULL, expires_at INTEGER NOT NULL,
  used_at INTEGER, territory_id BLOB, csr_key BLOB
);
-- Enrolments for each source address and hour.
CREATE TABLE enroll_rate (source TEXT NOT NULL, hour INTEGER NOT NULL, tries INTEGER NOT NULL, PRIMARY KEY (source, hour));

-- state: 1 active, 2 draining, 3 decommissioned.
CREATE TABLE territory (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, state INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT, display_name TEXT,
  platform TEXT, created_at INTEGER NOT NULL
);
CREATE INDEX territory_account ON territory (account_id, id);
-- Heartbeats write here, so that rows with indexes stay as they are.
CREATE TABLE presence (
  territory_id BLOB PRIMARY KEY, last_seen INTEGER, labels TEXT NOT NULL, capacity TEXT NOT NULL, guarantees TEXT NOT NULL,
  profiles TEXT NOT NULL, nexus_version TEXT, protocol_version TEXT, running INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE certificate (
  fingerprint BLOB PRIMARY KEY, spki BLOB NOT NULL, territory_id BLOB NOT NULL, account_id BLOB NOT NULL, revoked INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX certificate_key ON certificate (spki);
CREATE TABLE trail (
  id INTEGER PRIMARY KEY, account_id BLOB NOT NULL, territory_id BLOB NOT NULL, at INTEGER NOT NULL, event TEXT NOT NULL, cause TEXT NOT NULL
);

CREATE TABLE facility (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, kind TEXT NOT NULL, name TEXT, repo_url TEXT, pin BLOB, epoch INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL
);
CREATE INDEX facility_account ON facility (account_id, id);
CREATE TABLE grp (account_id BLOB NOT NULL, name TEXT NOT NULL, next_ms INTEGER NOT NULL, PRIMARY KEY (account_id, name));
-- Profile, guarantees and labels that directives demand; a row never changes.
CREATE TABLE class (
  id INTEGER PRIMARY KEY, account_id BLOB NOT NULL, requirements TEXT NOT NULL, UNIQUE (account_id, requirements)
);

-- Written when a directive is created and when it ends.
CREATE TABLE directive (
  id BLOB PRIMARY KEY, account_id BLOB NOT NULL, facility_id BLOB NOT NULL, state TEXT NOT NULL, reason TEXT, exit_code INTEGER,
  attempt INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, payload_hash TEXT,
  created_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER, territory_id BLOB, spec TEXT NOT NULL,
  approval_reasons TEXT NOT NULL, result TEXT, out TEXT, err TEXT
);
CREATE INDEX directive_facility ON directive (facility_id, id);
CREATE INDEX directive_account ON directive (account_id, id);

-- A row for each directive that is not over. phase: 0 waits for the facility, 1 ready, 2 leased, 3 running, 4 settling.
CREATE TABLE work (
  directive_id BLOB PRIMARY KEY, account_id BLOB NOT NULL, facility_id BLOB NOT NULL, shared INTEGER NOT NULL DEFAULT 0,
  pin BLOB NOT NULL, class_id INTEGER NOT NULL, rank INTEGER NOT NULL, starts INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL DEFAULT 1, phase INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0,
  holder BLOB, poll_id TEXT, confirms INTEGER NOT NULL DEFAULT 0, visible_at INTEGER, lease_until INTEGER, cancel_at INTEGER,
  queue_until INTEGER, started_at INTEGER, started TEXT, deadline INTEGER, timeout_ms INTEGER NOT NULL, requeue INTEGER NOT NULL,
  log_limit INTEGER NOT NULL, out TEXT NOT NULL, err TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX work_ready ON work (account_id, class_id, pin, rank, directive_id) WHERE phase = 1;
CREATE INDEX work_wait ON work (facility_id, rank) WHERE phase = 0;
CREATE INDEX work_held ON work (holder) WHERE phase >= 2;
CREATE INDEX work_queue ON work (queue_until) WHERE queue_until IS NOT NULL;
-- The lock of a facility is a constraint.
CREATE UNIQUE INDEX work_exclusive ON work (facility_id) WHERE phase >= 1 AND NOT shared;

CREATE TABLE log_chunk (
  directive_id BLOB NOT NULL, attempt INTEGER NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL,
  truncated INTEGER NOT NULL, created_at INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (directive_id, attempt, stream, seq)
);
CREATE TABLE directive_event (
  directive_id BLOB NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, events TEXT NOT NULL, PRIMARY KEY (directive_id, attempt, seq)
);
CREATE TABLE report (
  directive_id BLOB NOT NULL, attempt INTEGER NOT NULL, diff BLOB, receipt TEXT, PRIMARY KEY (directive_id, attempt)
);
CREATE TABLE idempotency (
  account_id BLOB NOT NULL, user_id BLOB NOT NULL, route TEXT NOT NULL, key TEXT NOT NULL, body_hash TEXT NOT NULL,
  directive_id BLOB NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (account_id, user_id, route, key)
);
