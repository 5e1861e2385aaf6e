CREATE TABLE api_keys (
    id uuid NOT NULL CONSTRAINT api_keys_pkey PRIMARY KEY,
    organization_id uuid NOT NULL CONSTRAINT api_keys_organization_id_fkey REFERENCES organizations (id),
    project_id uuid CONSTRAINT api_keys_project_id_fkey REFERENCES projects (id),
    name text NOT NULL,
    secret_sha256 bytea NOT NULL CONSTRAINT api_keys_secret_sha256_check CHECK (length(secret_sha256) = 32),
    last4 text NOT NULL,
    created_by uuid NOT NULL CONSTRAINT api_keys_created_by_fkey REFERENCES users (id),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    deleted_at timestamptz
);
CREATE INDEX api_keys_organization_id_idx ON api_keys (organization_id);
CREATE INDEX api_keys_project_id_idx ON api_keys (project_id);
CREATE INDEX api_keys_created_by_idx ON api_keys (created_by);
