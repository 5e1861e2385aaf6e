-- The audit intents: one row for each call that may change something and has no record yet, stored before the call does
-- anything. A row is deleted when the record of its call is stored; the rows that a run of a node leaves become
-- records. `at` is the time at which the request arrived.
CREATE TABLE audit_records_pending (
    id uuid NOT NULL CONSTRAINT audit_records_pending_pkey PRIMARY KEY,
    organization_id uuid NOT NULL,
    at timestamptz NOT NULL,
    auth_strategy text NOT NULL,
    service text NOT NULL,
    user_id text NOT NULL,
    email text NOT NULL,
    api_key_id uuid,
    project_id uuid,
    client_ip text NOT NULL,
    domain text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    route text NOT NULL,
    status integer NOT NULL,
    duration_ms bigint NOT NULL,
    user_agent text NOT NULL,
    request_id text NOT NULL,
    node_id uuid NOT NULL CONSTRAINT audit_records_pending_node_id_fkey REFERENCES nodes (id),
    run_id uuid NOT NULL
-- A small table with short-lived rows: frequent vacuums, and free space on the pages.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX audit_records_pending_node_id_idx ON audit_records_pending (node_id, run_id);
-- The time until which the records of each node are complete. Exports of other nodes end at it.
CREATE TABLE audit_records_marks (
    node_id uuid NOT NULL CONSTRAINT audit_records_marks_pkey PRIMARY KEY
        CONSTRAINT audit_records_marks_node_id_fkey REFERENCES nodes (id),
    whole_until timestamptz NOT NULL
);
