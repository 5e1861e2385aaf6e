-- The number of stored bytes of each session.
ALTER TABLE telemetry_counts ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
-- The number of lost events that have no sequence number yet.
ALTER TABLE telemetry_counts ADD COLUMN untold bigint NOT NULL DEFAULT 0;
-- The limit because of which the latest event was not stored; null if it was stored.
ALTER TABLE telemetry_counts ADD COLUMN storage_limit text
    CONSTRAINT telemetry_counts_storage_limit_check CHECK (storage_limit IN ('session', 'project', 'node', 'disk'));
-- The time at which readers were last notified of lost events.
ALTER TABLE telemetry_counts ADD COLUMN told_at timestamptz NOT NULL DEFAULT 'epoch';

-- The number of bytes that each node stored for each project on each day of UTC, without deleted ones.
CREATE TABLE stored_bytes (
    project_id uuid NOT NULL CONSTRAINT stored_bytes_project_id_fkey REFERENCES projects (id),
    node_id uuid NOT NULL CONSTRAINT stored_bytes_node_id_fkey REFERENCES nodes (id),
    day_at timestamptz NOT NULL,
    kind text NOT NULL CONSTRAINT stored_bytes_kind_check CHECK (kind IN ('telemetry', 'logs')),
    bytes bigint NOT NULL,
    CONSTRAINT stored_bytes_pkey PRIMARY KEY (project_id, node_id, day_at, kind)
);
CREATE INDEX stored_bytes_node_id_idx ON stored_bytes (node_id);

-- Counts the existing rows. A row takes 128 bytes in addition to its text.
UPDATE telemetry_counts c SET bytes = e.bytes
    FROM (SELECT session_id, sum(octet_length(body) + 128) AS bytes FROM telemetry_events GROUP BY session_id) e
    WHERE e.session_id = c.session_id;
INSERT INTO stored_bytes (project_id, node_id, day_at, kind, bytes)
    SELECT s.project_id, s.node_id, date_trunc('day', e.at, 'UTC'), 'telemetry', sum(octet_length(e.body) + 128)
    FROM telemetry_events e JOIN sessions s ON s.id = e.session_id GROUP BY 1, 2, 3;
INSERT INTO stored_bytes (project_id, node_id, day_at, kind, bytes)
    SELECT i.project_id, i.node_id, date_trunc('day', c.last_at, 'UTC'), 'logs', sum(c.bytes)
    FROM app_line_counts c JOIN invocations i ON i.id = c.subject_id WHERE i.node_id IS NOT NULL GROUP BY 1, 2, 3;
