-- True for the API keys of deployments, so that calls of apps can be distinguished from other calls.
ALTER TABLE api_keys ADD COLUMN for_deployment boolean NOT NULL DEFAULT false;

CREATE TABLE deployments (
    id uuid NOT NULL CONSTRAINT deployments_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT deployments_project_id_fkey REFERENCES projects (id),
    status text NOT NULL
        CONSTRAINT deployments_status_check CHECK (status IN ('queued', 'in_progress', 'running', 'failed', 'stopped')),
    status_reason text,
    region text NOT NULL,
    version text NOT NULL,
    force boolean NOT NULL,
    entrypoint text NOT NULL,
    -- The Git source; null for an uploaded archive.
    source_url text,
    source_ref text,
    source_path text,
    source_checksum text,
    env_names text[] NOT NULL,
    api_key_id uuid NOT NULL CONSTRAINT deployments_api_key_id_fkey REFERENCES api_keys (id),
    artifact text,
    -- The node that builds the deployment, or was the last to do so. No foreign key: the lease may exist longer than
    -- the node's row.
    lease_holder uuid,
    lease_number integer,
    lease_expires_at timestamptz,
    begun_at timestamptz,
    used_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT deployments_source_check CHECK ((source_url IS NULL) = (source_ref IS NULL)),
    CONSTRAINT deployments_lease_check
        CHECK ((lease_holder IS NULL) = (lease_number IS NULL) AND (lease_holder IS NULL) = (lease_expires_at IS NULL)),
    CONSTRAINT deployments_running_check CHECK (status <> 'running' OR artifact IS NOT NULL)
);
CREATE INDEX deployments_project_id_idx ON deployments (project_id, created_at DESC, id DESC);
CREATE INDEX deployments_api_key_id_idx ON deployments (api_key_id);
CREATE INDEX deployments_unbuilt_idx ON deployments (created_at) WHERE status IN ('queued', 'in_progress');
CREATE INDEX deployments_running_idx ON deployments (used_at DESC) WHERE status = 'running';
CREATE INDEX deployments_artifact_idx ON deployments (artifact) WHERE artifact IS NOT NULL;

-- Sealed with a master key that is not in this database; bytes 2 to 9 are the key's id.
CREATE TABLE deployment_secrets (
    deployment_id uuid NOT NULL
        CONSTRAINT deployment_secrets_deployment_id_fkey REFERENCES deployments (id) ON DELETE CASCADE,
    kind text NOT NULL CONSTRAINT deployment_secrets_kind_check CHECK (kind IN ('env_var', 'token', 'api_key')),
    -- The name of the variable; empty for other kinds.
    name text NOT NULL,
    sealed bytea NOT NULL,
    CONSTRAINT deployment_secrets_pkey PRIMARY KEY (deployment_id, kind, name)
);

CREATE TABLE app_versions (
    id uuid NOT NULL CONSTRAINT app_versions_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT app_versions_project_id_fkey REFERENCES projects (id),
    deployment_id uuid NOT NULL CONSTRAINT app_versions_deployment_id_fkey REFERENCES deployments (id),
    app_name text NOT NULL,
    version text NOT NULL,
    region text NOT NULL,
    actions text[] NOT NULL,
    -- True if the deployment is running.
    live boolean NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX app_versions_project_id_idx ON app_versions (project_id, app_name, version, created_at DESC);
CREATE INDEX app_versions_deployment_id_idx ON app_versions (deployment_id);
-- An app and version has at most one deployment that can be invoked.
CREATE UNIQUE INDEX app_versions_live_key ON app_versions (project_id, app_name, version) WHERE live;
