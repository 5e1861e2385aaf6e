-- One row per authenticated call. Partitions are months, created in advance and dropped when they are too old. A record
-- that fits into none of them is stored in the default partition, so that no record is lost because of its time.
CREATE TABLE audit_records (
    id uuid NOT NULL,
    organization_id uuid NOT NULL CONSTRAINT audit_records_organization_id_fkey REFERENCES organizations (id),
    at timestamptz NOT NULL,
    auth_strategy text NOT NULL
        CONSTRAINT audit_records_auth_strategy_check CHECK (auth_strategy IN ('api_key', 'session_token', 'none')),
    service text NOT NULL CONSTRAINT audit_records_service_check CHECK (service IN ('api', 'session', 'apps')),
    -- As text, because people search for parts of it.
    user_id text NOT NULL,
    email text NOT NULL,
    api_key_id uuid,
    project_id uuid CONSTRAINT audit_records_project_id_fkey REFERENCES projects (id),
    client_ip text NOT NULL,
    domain text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    route text NOT NULL,
    status integer NOT NULL,
    duration_ms bigint NOT NULL,
    user_agent text NOT NULL,
    CONSTRAINT audit_records_pkey PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);
-- The order of every query; a page begins where the previous one ended.
CREATE INDEX audit_records_organization_id_idx ON audit_records (organization_id, at DESC, id DESC);
CREATE INDEX audit_records_project_id_idx ON audit_records (project_id);
CREATE TABLE audit_records_other PARTITION OF audit_records DEFAULT;
