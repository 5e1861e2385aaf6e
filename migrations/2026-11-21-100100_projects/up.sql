CREATE TABLE projects (
    id uuid NOT NULL CONSTRAINT projects_pkey PRIMARY KEY,
    organization_id uuid NOT NULL CONSTRAINT projects_organization_id_fkey REFERENCES organizations (id),
    name text COLLATE name_ci NOT NULL,
    is_default boolean NOT NULL,
    status text NOT NULL CONSTRAINT projects_status_check CHECK (status IN ('active', 'archived')),
    max_concurrent_sessions integer CONSTRAINT projects_sessions_check CHECK (max_concurrent_sessions >= 0),
    max_pooled_sessions integer CONSTRAINT projects_pooled_check CHECK (max_pooled_sessions >= 0),
    max_concurrent_invocations integer CONSTRAINT projects_invocations_check CHECK (max_concurrent_invocations >= 0),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted_at timestamptz
);
CREATE INDEX projects_organization_id_idx ON projects (organization_id);
CREATE UNIQUE INDEX projects_name_key ON projects (organization_id, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX projects_default_key ON projects (organization_id) WHERE is_default AND deleted_at IS NULL;
